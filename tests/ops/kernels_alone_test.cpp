// The kernels against loops in double, without LibTorch: this file and ops/kernels/ are all that it
// takes, so that it can be built for another processor and run in an emulator
// (scripts/aarch64_check.sh).
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <functional>
#include <vector>

#include "ops/kernels/kernels.h"
#include "ops/kernels/step.h"

namespace transnormer::ops::kernels {
namespace {

using Numbers = std::vector<double>;

double next(std::uint64_t& state) {  // uniform in [-2, 2)
  state = state * 6364136223846793005U + 1442695040888963407U;
  return static_cast<double>(state >> 40) / (1 << 22) - 2;
}

float rounded(float x, Element type) {
  if (type == Element::f32) {
    return x;
  }
  const auto bits = std::bit_cast<std::uint32_t>(x);
  return std::bit_cast<float>((bits + 0x7FFF + ((bits >> 16) & 1)) & 0xFFFF0000U);
}

// A tensor of either type, and what it holds in double.
class Tensor {
 public:
  Tensor(std::int64_t count, Element type)
      : type_(type), floats_(static_cast<std::size_t>(count)), halves_(floats_.size()) {}
  static Tensor some(std::int64_t count, Element type, std::uint64_t seed) {
    Tensor made(count, type);
    for (std::size_t i = 0; i < made.floats_.size(); ++i) {
      made.floats_[i] = rounded(static_cast<float>(next(seed)), type);
      made.halves_[i] =
          static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(made.floats_[i]) >> 16);
    }
    return made;
  }
  [[nodiscard]] In in() const { return {data(), type_}; }
  [[nodiscard]] Out out() { return {const_cast<void*>(data()), type_}; }
  [[nodiscard]] Numbers numbers() const {
    if (type_ == Element::f32) {
      return {floats_.begin(), floats_.end()};
    }
    Numbers read;
    for (const std::uint16_t half : halves_) {
      read.push_back(std::bit_cast<float>(std::uint32_t{half} << 16));
    }
    return read;
  }

 private:
  [[nodiscard]] const void* data() const {
    return type_ == Element::f32 ? static_cast<const void*>(floats_.data()) : halves_.data();
  }
  Element type_;
  std::vector<float> floats_;
  std::vector<std::uint16_t> halves_;
};

// 64 bytes aligned, as scratch has to be.
struct Scratch {
  explicit Scratch(std::int64_t count) : floats(static_cast<std::size_t>(count) + 16, NAN) {}
  float* data() {
    const auto at = reinterpret_cast<std::uintptr_t>(floats.data());
    return floats.data() + (64 - at % 64) % 64 / sizeof(float);
  }
  std::vector<float> floats;
};

// Relative to the largest.
void expect_near(const Numbers& found, const Numbers& wanted, double tolerance) {
  ASSERT_EQ(found.size(), wanted.size());
  double largest = 0;
  double difference = 0;
  for (std::size_t i = 0; i < found.size(); ++i) {
    ASSERT_TRUE(std::isfinite(found[i])) << i;
    largest = std::max(largest, std::abs(wanted[i]));
    difference = std::max(difference, std::abs(found[i] - wanted[i]));
  }
  EXPECT_GT(largest, 0);
  EXPECT_LE(difference, tolerance * largest);
}

class KernelsAlone : public testing::TestWithParam<Element> {
 protected:
  [[nodiscard]] double tolerance() const { return GetParam() == Element::f32 ? 2e-6 : 0x1p-8; }
  [[nodiscard]] Tensor some(std::int64_t count, std::uint64_t seed) const {
    return Tensor::some(count, GetParam(), seed);
  }
  [[nodiscard]] Tensor room(std::int64_t count) const { return Tensor(count, GetParam()); }
  static void on_each(const std::function<void(const Kernels&)>& body) {
    for (const Kernels* const* k = all_kernels(); *k != nullptr; ++k) {
      SCOPED_TRACE((*k)->name);
      body(**k);
    }
  }
};

double silu(double x) {
  return x / (1 + std::exp(-x));
}

TEST_P(KernelsAlone, GateByItsSilu) {
  constexpr std::int64_t kRows = 5, kWidth = 37;
  const Tensor gate_up = some(kRows * 2 * kWidth, 1);
  const Tensor d_out = some(kRows * kWidth, 2);
  const Numbers x = gate_up.numbers(), g = d_out.numbers();
  Numbers out, d_gate_up(x.size());
  for (std::int64_t r = 0; r < kRows; ++r) {
    for (std::int64_t i = 0; i < kWidth; ++i) {
      const auto at = static_cast<std::size_t>(r * 2 * kWidth + i);
      const double gate = x[at], up = x[at + kWidth], s = 1 / (1 + std::exp(-gate));
      const double d = g[static_cast<std::size_t>(r * kWidth + i)];
      out.push_back(silu(gate) * up);
      d_gate_up[at] = d * up * s * (1 + gate * (1 - s));
      d_gate_up[at + kWidth] = d * silu(gate);
    }
  }
  on_each([&](const Kernels& k) {
    Tensor found = room(kRows * kWidth), d_found = room(kRows * 2 * kWidth);
    k.gated(Gate::silu, gate_up.in(), found.out(), {kRows, kWidth});
    k.gated_backward(Gate::silu, gate_up.in(), d_out.in(), d_found.out(), {kRows, kWidth});
    expect_near(found.numbers(), out, tolerance());
    expect_near(d_found.numbers(), d_gate_up, tolerance());
  });
}

TEST_P(KernelsAlone, NormaliseRows) {
  constexpr std::int64_t kRows = 7, kDim = 75;
  constexpr float kEps = 1e-3F;
  const Tensor input = some(kRows * kDim, 3);
  const Tensor d_out = some(kRows * kDim, 4);
  const Numbers x = input.numbers(), g = d_out.numbers();
  Numbers out, d_x;
  for (std::size_t r = 0; r < kRows; ++r) {
    double squares = 0, products = 0;
    for (std::size_t i = r * kDim; i < (r + 1) * kDim; ++i) {
      squares += x[i] * x[i];
      products += x[i] * g[i];
    }
    const double scale = 1 / std::sqrt(squares / kDim + kEps);
    for (std::size_t i = r * kDim; i < (r + 1) * kDim; ++i) {
      out.push_back(x[i] * scale);
      d_x.push_back(scale * (g[i] - x[i] * products / kDim * scale * scale));
    }
  }
  on_each([&](const Kernels& k) {
    Tensor found = room(kRows * kDim), d_found = room(kRows * kDim);
    k.srms_norm(input.in(), found.out(), kRows, kDim, kEps);
    k.srms_norm_backward(input.in(), d_out.in(), d_found.out(), kRows, kDim, kEps);
    expect_near(found.numbers(), out, tolerance());
    expect_near(d_found.numbers(), d_x, tolerance());
  });
}

// One batch row of [time, heads, dim].
struct Shape {
  std::int64_t time, heads, dim;
  [[nodiscard]] std::int64_t size() const { return time * heads * dim; }
  [[nodiscard]] std::size_t at(std::int64_t t, std::int64_t h, std::int64_t i) const {
    return static_cast<std::size_t>((t * heads + h) * dim + i);
  }
};

struct Attended {
  Numbers out, d_q, d_k, d_v;
};

// o_i = sum over j of w_ij v_j with w_ij = weight(s_ij): where a score's gradient only depends on
// its row, `slope` gives d(weights)/d(scores) applied to the gradient of the weights.
using Weights = std::function<Numbers(const Numbers& scores)>;
using Slope = std::function<Numbers(const Numbers& weights, const Numbers& d_weights)>;

Attended attend(const Shape& s, const Numbers& q, const Numbers& k, const Numbers& v,
                const Numbers& d_out, double scale, std::int64_t block, const Weights& weights,
                const Slope& slope) {
  const auto zeros = [&] { return Numbers(static_cast<std::size_t>(s.size())); };
  Attended made{zeros(), zeros(), zeros(), zeros()};
  for (std::int64_t h = 0; h < s.heads; ++h) {
    for (std::int64_t i = 0; i < s.time; ++i) {
      const std::int64_t first = i / block * block;
      Numbers scores, d_weights;
      for (std::int64_t j = first; j <= i; ++j) {
        double score = 0, d_weight = 0;
        for (std::int64_t c = 0; c < s.dim; ++c) {
          score += q[s.at(i, h, c)] * k[s.at(j, h, c)];
          d_weight += d_out[s.at(i, h, c)] * v[s.at(j, h, c)];
        }
        scores.push_back(score * scale);
        d_weights.push_back(d_weight);
      }
      const Numbers w = weights(scores);
      const Numbers d_scores = slope(w, d_weights);
      for (std::int64_t j = first; j <= i; ++j) {
        const auto n = static_cast<std::size_t>(j - first);
        for (std::int64_t c = 0; c < s.dim; ++c) {
          made.out[s.at(i, h, c)] += w[n] * v[s.at(j, h, c)];
          made.d_v[s.at(j, h, c)] += w[n] * d_out[s.at(i, h, c)];
          made.d_q[s.at(i, h, c)] += scale * d_scores[n] * k[s.at(j, h, c)];
          made.d_k[s.at(j, h, c)] += scale * d_scores[n] * q[s.at(i, h, c)];
        }
      }
    }
  }
  return made;
}

TEST_P(KernelsAlone, AttendInBlocks) {
  constexpr Shape kShape{43, 2, 13};
  constexpr std::int64_t kBlock = 20;
  constexpr float kScale = 0.3F;
  const Tensor q = some(kShape.size(), 5), k = some(kShape.size(), 6), v = some(kShape.size(), 7);
  const Tensor d_out = some(kShape.size(), 8);
  const Attended wanted = attend(
      kShape, q.numbers(), k.numbers(), v.numbers(), d_out.numbers(), kScale, kBlock,
      [](const Numbers& scores) {
        Numbers w;
        double sum = 0;
        for (const double score : scores) {
          w.push_back(std::exp(score));
          sum += w.back();
        }
        for (double& weight : w) {
          weight /= sum;
        }
        return w;
      },
      [](const Numbers& w, const Numbers& d_w) {
        double mean = 0;
        for (std::size_t i = 0; i < w.size(); ++i) {
          mean += w[i] * d_w[i];
        }
        Numbers d_scores;
        for (std::size_t i = 0; i < w.size(); ++i) {
          d_scores.push_back(w[i] * (d_w[i] - mean));
        }
        return d_scores;
      });
  on_each([&](const Kernels& kernels) {
    Scratch scratch(block_attention_scratch(kBlock, kShape.dim));
    const BlockAttention all{.first = 0,
                             .last = kShape.heads,
                             .time = kShape.time,
                             .heads = kShape.heads,
                             .dim = kShape.dim,
                             .block = kBlock,
                             .scale = kScale,
                             .softmax = true,
                             .drops = false,
                             .mask = {},
                             .scratch = scratch.data()};
    Tensor out = room(kShape.size()), d_q = out, d_k = out, d_v = out;
    kernels.block_attention(all, q.in(), k.in(), v.in(), out.out());
    kernels.block_attention_backward(all, q.in(), k.in(), v.in(), d_out.in(), d_q.out(), d_k.out(),
                                     d_v.out(), nullptr);
    expect_near(out.numbers(), wanted.out, tolerance());
    expect_near(d_q.numbers(), wanted.d_q, 4 * tolerance());
    expect_near(d_k.numbers(), wanted.d_k, 4 * tolerance());
    expect_near(d_v.numbers(), wanted.d_v, 4 * tolerance());
  });
}

TEST_P(KernelsAlone, AttendInLinearTimeOverSeveralChunks) {
  constexpr Shape kShape{2 * kChunk + 17, 3, 11};
  const Tensor q = some(kShape.size(), 9), k = some(kShape.size(), 10), v = some(kShape.size(), 11);
  const Tensor d_out = some(kShape.size(), 12);
  const auto feature = [](Numbers x) {
    for (double& value : x) {
      value = value > 0 ? value + 1 : std::exp(value);
    }
    return x;
  };
  const Numbers phi_q = feature(q.numbers()), phi_k = feature(k.numbers());
  Attended wanted = attend(
      kShape, phi_q, phi_k, v.numbers(), d_out.numbers(), 1, kShape.time,
      [](const Numbers& scores) { return scores; },
      [](const Numbers&, const Numbers& d_weights) { return d_weights; });
  for (std::size_t i = 0; i < phi_q.size(); ++i) {
    wanted.d_q[i] *= std::min(phi_q[i], 1.0);  // the slope of elu(x) + 1
    wanted.d_k[i] *= std::min(phi_k[i], 1.0);
  }
  on_each([&](const Kernels& kernels) {
    Scratch scratch(linear_attention_scratch(kShape.heads, kShape.dim, kShape.dim));
    const LinearAttention all{.first = 0,
                              .last = kShape.heads,
                              .time = kShape.time,
                              .heads = kShape.heads,
                              .key_dim = kShape.dim,
                              .value_dim = kShape.dim,
                              .scratch = scratch.data(),
                              .feature = Feature::elu1};
    Tensor out = room(kShape.size()), d_q = out, d_k = out, d_v = out;
    kernels.linear_attention(all, q.in(), k.in(), v.in(), out.out(), nullptr);
    kernels.linear_attention_backward(all, q.in(), k.in(), v.in(), d_out.in(), d_q.out(), d_k.out(),
                                      d_v.out(), nullptr, {});
    expect_near(out.numbers(), wanted.out, tolerance());
    expect_near(d_q.numbers(), wanted.d_q, 4 * tolerance());
    expect_near(d_k.numbers(), wanted.d_k, 4 * tolerance());
    expect_near(d_v.numbers(), wanted.d_v, 4 * tolerance());
  });
}

TEST_P(KernelsAlone, MultiplyFewRows) {
  constexpr FewRows kAll{.first = 0, .last = 37, .rows = 3, .in = 53, .out = 37};
  const Tensor x = some(kAll.rows * kAll.in, 13), weight = some(kAll.out * kAll.in, 14);
  const Tensor bias = some(kAll.out, 15);
  const Numbers a = x.numbers(), w = weight.numbers(), b = bias.numbers();
  Numbers wanted;
  for (std::int64_t r = 0; r < kAll.rows; ++r) {
    for (std::int64_t o = 0; o < kAll.out; ++o) {
      double sum = b[static_cast<std::size_t>(o)];
      for (std::int64_t i = 0; i < kAll.in; ++i) {
        sum += a[static_cast<std::size_t>(r * kAll.in + i)] *
               w[static_cast<std::size_t>(o * kAll.in + i)];
      }
      wanted.push_back(sum);
    }
  }
  on_each([&](const Kernels& k) {
    Tensor y = room(kAll.rows * kAll.out);
    k.step->product(kAll, x.in(), weight.in(), bias.in(), y.out());
    expect_near(y.numbers(), wanted, tolerance());
  });
}

INSTANTIATE_TEST_SUITE_P(Of, KernelsAlone, testing::Values(Element::f32, Element::bf16),
                         [](const auto& chosen) {
                           return chosen.param == Element::f32 ? "Fp32" : "Bf16";
                         });

}  // namespace
}  // namespace transnormer::ops::kernels
