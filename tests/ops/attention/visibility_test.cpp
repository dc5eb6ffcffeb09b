// The attentions where not every token is seen, against dense masks in double precision.
#include "ops/attention/visibility.h"

#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <map>
#include <string>

#include "ops/attention/block_attention.h"
#include "ops/attention/groups.h"
#include "ops/attention/linear_attention.h"
#include "ops/reference.h"

namespace transnormer::ops {
namespace {

enum class Kind { linear, softmax, relu };

constexpr std::int64_t kBatch = 3, kTime = 75, kHeads = 2, kKeyDim = 6;
constexpr double kScale = 0.4;
constexpr std::int64_t kFirstPosition = 7;

struct Case {
  Kind kind = Kind::linear;
  std::int64_t block = 0;  // of no meaning to linear attention
  std::int64_t value_dim = 5;
  FeatureMap feature = FeatureMap::elu1;
  bool causal = true;
  bool padding = false;
  bool segments = false;
  bool positions = false;

  [[nodiscard]] std::string name() const {
    return "kind " + std::to_string(static_cast<int>(kind)) + ", block " + std::to_string(block) +
           ", width " + std::to_string(value_dim) + (causal ? ", causal" : "") +
           (padding ? ", padding" : "") + (segments ? ", segments" : "") +
           (positions ? ", positions" : "");
  }
};

// Padding in front, amidst and behind, a row without any, and one that is nothing else.
at::Tensor some_padding() {
  at::Tensor padding = at::zeros({kBatch, kTime}, at::kBool);
  padding[0].slice(0, 0, 3).fill_(true);
  padding[0].slice(0, 20, 31).fill_(true);
  padding[0].slice(0, 64).fill_(true);
  padding[2].fill_(true);
  return padding;
}

// One after another in row 0, between one another in the others.
at::Tensor some_segments() {
  const at::Tensor time = at::arange(kTime, at::kLong);
  return at::stack({time.div(33, "floor"), time.remainder(2) * 9 - 4, time.remainder(5)});
}

at::Tensor some_positions() {
  return at::arange(kTime, at::kLong).remainder(17) +
         at::arange(kBatch, at::kLong).unsqueeze(1) * 10;
}

Visibility visibility_of(const Case& c) {
  return {.causal = c.causal,
          .padding = c.padding ? some_padding() : at::Tensor(),
          .segments = c.segments ? some_segments() : at::Tensor()};
}

// Gathered blocks begin anywhere: a period, which is theirs in whole rows, must not show.
Encoding encoding_of(const Case& c, const at::Tensor& theta) {
  const at::Tensor unit = normal({kKeyDim}, 21);
  return {.feature = c.feature,
          .theta = theta,
          .reflect = unit / unit.norm(),
          .first_position = kFirstPosition,
          .period = c.padding || c.segments ? c.block : 0,
          .positions = c.positions ? some_positions() : at::Tensor()};
}

at::Tensor attend(const Case& c, const std::vector<at::Tensor>& x, const Encoding& encoding,
                  const Visibility& visibility, double dropout = 0) {
  if (c.kind == Kind::linear) {
    return linear_attention(x[0], x[1], x[2], {.encoding = encoding, .visibility = visibility});
  }
  return block_attention(x[0], x[1], x[2],
                         {.score = c.kind == Kind::softmax ? ScoreKind::softmax : ScoreKind::relu,
                          .block = c.block,
                          .scale = kScale,
                          .dropout = dropout,
                          .dropout_key = {.seed = 5, .update = 6, .layer = 1, .site = 3},
                          .encoding = encoding,
                          .visibility = visibility});
}

// True where token i of a row sees token j, [batch, 1, time, time], as its definition says it.
at::Tensor seen(const Case& c, const Visibility& v) {
  const std::int64_t block = c.kind == Kind::linear || c.block == 0 ? kTime : c.block;
  const auto flags = [](const at::Tensor& x) {
    return values(x.defined() ? x : at::zeros({kBatch, kTime}));
  };
  const std::vector<double> paddings = flags(v.padding), segments = flags(v.segments);
  const at::Tensor mask = at::zeros({kBatch, 1, kTime, kTime}, at::kBool);
  auto* out = mask.mutable_data_ptr<bool>();
  for (std::int64_t b = 0; b < kBatch; ++b) {
    std::map<double, std::int64_t> behind;  // of each segment, how many real tokens came
    std::vector<std::int64_t> rank(kTime), real(kTime);
    std::vector<double> segment(kTime);
    for (std::size_t t = 0; t < kTime; ++t) {
      const std::size_t at = static_cast<std::size_t>(b * kTime) + t;
      real[t] = paddings[at] == 0 ? 1 : 0;
      segment[t] = segments[at];
      rank[t] = behind[segment[t]];
      behind[segment[t]] += real[t];
    }
    for (std::size_t i = 0; i < kTime; ++i) {
      for (std::size_t j = 0; j < kTime; ++j) {
        *out++ = real[i] == 1 && real[j] == 1 && segment[i] == segment[j] &&
                 rank[i] / block == rank[j] / block && (!v.causal || j <= i);
      }
    }
  }
  return mask;
}

at::Tensor phi(const at::Tensor& x, FeatureMap feature) {
  const at::Tensor low = x.clamp_max(0);
  return feature == FeatureMap::elu1 ? at::where(x > 0, x + 1, low.exp())
                                     : at::where(x > 0, x, low.expm1());
}

// The encoding in double, [batch, heads, time, dim].
at::Tensor encoded(const at::Tensor& x, const Encoding& e) {
  const at::Tensor unit = e.reflect.to(at::kDouble);
  const at::Tensor f = phi(x, *e.feature);
  const at::Tensor z = f - 2 * (f * unit).sum(-1, true) * unit;
  const at::Tensor position = e.positions.defined()
                                  ? e.positions
                                  : (at::arange(kTime, at::kLong) + e.first_position).unsqueeze(0);
  const at::Tensor angle = position.to(at::kDouble).unsqueeze(-1).unsqueeze(2) * e.theta;
  const at::Tensor even = z.slice(-1, 0, kKeyDim, 2), odd = z.slice(-1, 1, kKeyDim, 2);
  return at::stack({even * angle.cos() - odd * angle.sin(), even * angle.sin() + odd * angle.cos()},
                   -1)
      .flatten(-2)
      .transpose(1, 2);
}

at::Tensor reference(const Case& c, const std::vector<at::Tensor>& x, const Encoding& e,
                     const Visibility& visibility) {
  const at::Tensor mask = seen(c, visibility).to(at::kDouble);
  const at::Tensor scores = at::matmul(encoded(x[0], e), encoded(x[1], e).transpose(2, 3));
  at::Tensor weights;
  if (c.kind == Kind::linear) {
    weights = scores * mask;
  } else if (c.kind == Kind::relu) {
    weights = (scores * kScale).relu() * mask;
  } else {
    weights = (scores * kScale).exp() * mask;
    const at::Tensor sum = weights.sum(-1, true);
    weights = weights / (sum + (sum == 0).to(at::kDouble));
  }
  return at::matmul(weights, x[2].transpose(1, 2)).transpose(1, 2);
}

std::vector<at::Tensor> operands(const Case& c) {
  return {normal({kBatch, kTime, kHeads, kKeyDim}, 1), normal({kBatch, kTime, kHeads, kKeyDim}, 2),
          normal({kBatch, kTime, kHeads, c.value_dim}, 3)};
}

at::Tensor gradient_of_output(const Case& c) {
  return normal({kBatch, kTime, kHeads, c.value_dim}, 4);
}

at::Tensor some_theta() {
  return normal({kKeyDim / 2}, 20).abs();
}

// The output, then the gradients of q, k, v and theta.
template <typename Attend>
std::vector<at::Tensor> passed(const std::vector<at::Tensor>& given, const at::Tensor& theta,
                               const at::Tensor& gradient, const Attend& own) {
  std::vector<at::Tensor> leaves;
  for (const at::Tensor& x : given) {
    leaves.push_back(leaf(x));
  }
  const at::Tensor angles = leaf(theta);
  const at::Tensor y = own(leaves, angles);
  torch::autograd::backward({y}, {gradient.to(y.scalar_type())});
  return {y.detach(), leaves[0].grad(), leaves[1].grad(), leaves[2].grad(), angles.grad()};
}

std::vector<at::Tensor> by_operators(const Case& c, const std::vector<at::Tensor>& given) {
  return passed(given, some_theta(), gradient_of_output(c),
                [&c](const std::vector<at::Tensor>& x, const at::Tensor& theta) {
                  return attend(c, x, encoding_of(c, theta), visibility_of(c));
                });
}

std::vector<at::Tensor> expected_of(const Case& c) {
  std::vector<at::Tensor> wide;
  for (const at::Tensor& x : operands(c)) {
    wide.push_back(x.to(at::kDouble));
  }
  return passed(wide, some_theta().to(at::kDouble), gradient_of_output(c),
                [&c](const std::vector<at::Tensor>& x, const at::Tensor& theta) {
                  return reference(c, x, encoding_of(c, theta), visibility_of(c));
                });
}

struct Attention {
  Kind kind;
  std::int64_t block;
  std::int64_t value_dim;
  FeatureMap feature;
};

class Visible : public testing::TestWithParam<Attention> {
 protected:
  // With each choice of what is seen.
  template <typename Body>
  void for_cases(const Body& body) const {
    const Attention& a = GetParam();
    for (int choice = 0; choice < 16; ++choice) {
      body(Case{a.kind, a.block, a.value_dim, a.feature, (choice & 1) != 0, (choice & 2) != 0,
                (choice & 4) != 0, (choice & 8) != 0});
    }
  }
};

constexpr const char* kResults[] = {"output", "d(q)", "d(k)", "d(v)", "d(theta)"};

TEST_P(Visible, AgreesWithDenseMasksForwardAndBackward) {
  for_cases([](const Case& c) {
    const std::vector<at::Tensor> found = by_operators(c, operands(c));
    const std::vector<at::Tensor> expected = expected_of(c);
    for (std::size_t i = 0; i < found.size(); ++i) {
      // Of angles, what is left of large terms.
      EXPECT_LT(distance(found[i], expected[i]), i < 4 ? 4e-6 : 1e-4)
          << c.name() << ": " << kResults[i];
    }
  });
}

TEST_P(Visible, WhatStandsAtPaddingReachesNothing) {
  const at::Tensor padding = some_padding().unsqueeze(-1).unsqueeze(-1);
  for_cases([&padding](const Case& c) {
    if (!c.padding) {
      return;
    }
    std::vector<at::Tensor> other = operands(c);
    for (at::Tensor& x : other) {
      x = x.masked_fill(padding, NAN);
    }
    const std::vector<at::Tensor> found = by_operators(c, other);
    const std::vector<at::Tensor> expected = by_operators(c, operands(c));
    for (std::size_t i = 0; i < found.size(); ++i) {
      EXPECT_TRUE(at::equal(found[i], expected[i])) << c.name() << ": " << kResults[i];
      if (i < 4) {
        EXPECT_EQ(found[i].masked_select(padding).abs().sum().item<double>(), 0) << c.name();
      }
    }
  });
}

TEST_P(Visible, Bfloat16IsWithinItsRounding) {
  for_cases([](const Case& c) {
    std::vector<at::Tensor> rounded, exact;
    for (const at::Tensor& x : operands(c)) {
      rounded.push_back(x.to(at::kBFloat16));
      exact.push_back(rounded.back().to(at::kFloat));
    }
    const std::vector<at::Tensor> found = by_operators(c, rounded);
    const std::vector<at::Tensor> expected = by_operators(c, exact);
    ASSERT_EQ(found[0].scalar_type(), at::kBFloat16);
    for (std::size_t i = 0; i < 4; ++i) {
      if (c.kind == Kind::relu && (i == 1 || i == 2)) {
        continue;  // scores near zero change sides
      }
      // Encoded operands are rounded too, twice.
      EXPECT_LT(distance(found[i], expected[i]), 8 * 0x1.0p-8) << c.name() << ": " << kResults[i];
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Attentions, Visible,
                         testing::Values(Attention{Kind::linear, 0, 5, FeatureMap::elu1},
                                         Attention{Kind::linear, 0, 9, FeatureMap::elu},
                                         Attention{Kind::softmax, 0, 5, FeatureMap::elu},
                                         Attention{Kind::softmax, 0, 6, FeatureMap::elu1},
                                         Attention{Kind::softmax, 9, 6, FeatureMap::elu},
                                         Attention{Kind::softmax, 9, 5, FeatureMap::elu1},
                                         Attention{Kind::relu, 0, 6, FeatureMap::elu},
                                         Attention{Kind::relu, 9, 6, FeatureMap::elu},
                                         Attention{Kind::relu, 9, 5, FeatureMap::elu1}));

// The same 40 tokens with padding around them, behind them, or alone; with dropout where there is.
class AmountOfPadding : public testing::TestWithParam<Attention> {};

TEST_P(AmountOfPadding, ReachesNothing) {
  constexpr std::int64_t kTokens = 40;
  const Attention& a = GetParam();
  for (const bool causal : {true, false}) {
    for (const double dropout : {0.0, 0.3}) {
      const Case c{a.kind, a.block, a.value_dim, a.feature, causal, true, false, true};
      std::vector<at::Tensor> real;
      for (const at::Tensor& x : operands(c)) {
        real.push_back(x.slice(1, 0, kTokens));
      }
      const at::Tensor g = gradient_of_output(c).slice(1, 0, kTokens);
      std::vector<std::vector<at::Tensor>> results;
      for (const auto& [front, behind] : {std::pair{0, 1}, std::pair{0, 35}, std::pair{9, 70}}) {
        const auto padded = [f = front, b = behind](const at::Tensor& x) {
          return at::constant_pad_nd(x, {0, 0, 0, 0, f, b}, 100);
        };
        const at::Tensor padding =
            at::constant_pad_nd(at::zeros({kBatch, kTokens}), {front, behind}, 1).to(at::kBool);
        const at::Tensor positions = at::constant_pad_nd(
            at::arange(kTokens, at::kLong).expand({kBatch, kTokens}), {front, behind}, 3);
        std::vector<at::Tensor> found =
            passed({padded(real[0]), padded(real[1]), padded(real[2])}, some_theta(), padded(g),
                   [&](const std::vector<at::Tensor>& x, const at::Tensor& theta) {
                     Encoding e = encoding_of(c, theta);
                     e.positions = positions;
                     return attend(c, x, e, {.causal = causal, .padding = padding, .segments = {}},
                                   dropout);
                   });
        for (std::size_t i = 0; i < 4; ++i) {
          found[i] = found[i].slice(1, front, front + kTokens);
        }
        results.push_back(found);
      }
      for (std::size_t other = 1; other < results.size(); ++other) {
        for (std::size_t i = 0; i < 5; ++i) {
          EXPECT_LT(distance(results[other][i], results[0][i]), 1e-6)
              << c.name() << ", dropout " << dropout << ": " << kResults[i];
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Attentions, AmountOfPadding,
                         testing::Values(Attention{Kind::linear, 0, 5, FeatureMap::elu1},
                                         Attention{Kind::softmax, 0, 6, FeatureMap::elu},
                                         Attention{Kind::softmax, 9, 6, FeatureMap::elu},
                                         Attention{Kind::relu, 9, 5, FeatureMap::elu}));

// With a period, which the sequence without padding keeps.
TEST(PaddingInFront, OfBlocksIsAsIfItWereNotThereWithPositionsNamedOrNot) {
  constexpr std::int64_t kTokens = 40, kFront = 5;
  for (const std::int64_t value_dim : {kKeyDim, kKeyDim - 1}) {
    const Case c{
        .kind = Kind::softmax, .block = 9, .value_dim = value_dim, .feature = FeatureMap::elu};
    const auto run = [&c](std::int64_t front, bool named) {
      const auto padded = [front](const at::Tensor& x) {
        return at::constant_pad_nd(x.narrow(1, 0, kTokens), {0, 0, 0, 0, front, 0}, 100);
      };
      const std::vector<at::Tensor> x = operands(c);
      const at::Tensor time = at::arange(front + kTokens, at::kLong).expand({kBatch, -1});
      std::vector<at::Tensor> found = passed(
          {padded(x[0]), padded(x[1]), padded(x[2])}, some_theta(), padded(gradient_of_output(c)),
          [&](const std::vector<at::Tensor>& given, const at::Tensor& theta) {
            Encoding e = encoding_of(c, theta);
            e.first_position = 0;
            e.period = c.block;
            e.positions = named ? (time - front).clamp_min(0) : at::Tensor();
            const at::Tensor padding = front > 0 ? time < front : at::Tensor();
            return attend(c, given, e, {.causal = true, .padding = padding, .segments = {}});
          });
      for (std::size_t i = 0; i < 4; ++i) {
        found[i] = found[i].slice(1, front);
      }
      return found;
    };
    const std::vector<at::Tensor> alone = run(0, false);
    for (const bool named : {false, true}) {
      const std::vector<at::Tensor> found = run(kFront, named);
      for (std::size_t i = 0; i < 5; ++i) {
        EXPECT_LT(distance(found[i], alone[i]), i < 4 ? 4e-6 : 1e-4)
            << c.name() << (named ? ", positions named: " : ": ") << kResults[i];
      }
    }
  }
}

TEST(Nothing, ToBeSeenGivesZeros) {
  for (const Kind kind : {Kind::linear, Kind::softmax}) {
    const Case c{.kind = kind, .causal = false, .padding = true};
    const std::vector<at::Tensor> found =
        passed(operands(c), some_theta(), gradient_of_output(c),
               [&c](const std::vector<at::Tensor>& x, const at::Tensor& theta) {
                 const at::Tensor padding = at::ones({kBatch, kTime}, at::kBool);
                 return attend(c, x, encoding_of(c, theta),
                               {.causal = false, .padding = padding, .segments = {}});
               });
    EXPECT_TRUE(at::equal(found[0], at::zeros_like(found[0])));
    EXPECT_TRUE(at::equal(found[3], at::zeros_like(found[3])));
  }
}

// A long segment beside many short ones: the places that gathering makes stay few.
TEST(Segments, OfAnyLengthsTakeAtMostTwoPlacesAToken) {
  const at::Tensor segments = (at::arange(4096, at::kLong) - 2048).clamp_min(0).unsqueeze(0);
  const Groups groups({.causal = true, .padding = {}, .segments = segments}, 1, 4096, 0, at::kCPU);
  EXPECT_LE(groups.gather(at::ones({1, 4096, 1, 1})).size(1), 2 * 4096);
}

}  // namespace
}  // namespace transnormer::ops
