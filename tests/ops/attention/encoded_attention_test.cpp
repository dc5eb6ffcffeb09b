// The attentions' kernels on every instruction set, with queries and keys encoded on the fly, of
// dense and of joint tensors, against plain loops in double precision.
#include <ATen/Parallel.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <string>

#include "ops/attention/attention_operands.h"
#include "ops/attention/block_attention.h"
#include "ops/attention/joint.h"
#include "ops/attention/linear_attention.h"
#include "ops/reference.h"
#include "ops/runtime/kernel_view.h"
#include "ops/runtime/scratch.h"

namespace transnormer::ops {
namespace {

constexpr std::int64_t kBatch = 2;
constexpr std::int64_t kHeads = 3;
constexpr std::int64_t kBlock = 64;
constexpr std::int64_t kFirstPosition = 7;

enum class Kind { linear, softmax, relu };

struct Case {
  Kind kind;
  std::int64_t time;
  std::int64_t dim;
  bool encoded;
  at::ScalarType type;

  [[nodiscard]] std::int64_t period() const { return kind == Kind::linear ? 0 : kBlock; }
  [[nodiscard]] double scale() const {
    return kind == Kind::linear ? 1 : 1 / std::sqrt(static_cast<double>(dim));
  }
  [[nodiscard]] std::size_t place(std::int64_t b, std::int64_t t, std::int64_t h) const {
    return static_cast<std::size_t>(((b * time + t) * kHeads + h) * dim);
  }
  [[nodiscard]] double position(std::size_t row) const {
    const std::int64_t t = static_cast<std::int64_t>(row) / kHeads % time + kFirstPosition;
    return static_cast<double>(period() > 0 ? t % period() : t);
  }
};

Encoding encoding_of(const Case& c, FeatureMap feature = FeatureMap::elu1) {
  if (!c.encoded) {
    return {};
  }
  const at::Tensor unit = normal({c.dim}, 21);
  return {.feature = feature,
          .theta = normal({c.dim / 2}, 20).abs(),
          .reflect = unit / unit.norm(),
          .first_position = kFirstPosition,
          .period = c.period()};
}

using Numbers = std::vector<double>;

double phi(double x) {
  return x > 0 ? x + 1 : std::exp(x);
}

// Reflects a row in place.
void reflect(double* row, const Numbers& unit) {
  double along = 0;
  for (std::size_t i = 0; i < unit.size(); ++i) {
    along += row[i] * unit[i];
  }
  for (std::size_t i = 0; i < unit.size(); ++i) {
    row[i] -= 2 * along * unit[i];
  }
}

// Rotates the pairs of a row by the angles at a position in place.
void rotate(double* row, double position, const Numbers& theta) {
  for (std::size_t i = 0; i < theta.size(); ++i) {
    const double c = std::cos(position * theta[i]), s = std::sin(position * theta[i]);
    const double even = row[2 * i], odd = row[2 * i + 1];
    row[2 * i] = even * c - odd * s;
    row[2 * i + 1] = even * s + odd * c;
  }
}

Numbers encoded(Numbers x, const Case& c, const Encoding& e) {
  if (!c.encoded) {
    return x;
  }
  const Numbers theta = values(e.theta), unit = values(e.reflect);
  for (double& each : x) {
    each = phi(each);
  }
  for (std::size_t row = 0; row < x.size() / unit.size(); ++row) {
    reflect(&x[row * unit.size()], unit);
    rotate(&x[row * unit.size()], c.position(row), theta);
  }
  return x;
}

// d(x) from d(encoded x), in place; `y` is encoded x. A rotated pair moves by (-odd, even) with its
// angle.
void encoded_backward(Numbers& d, const Numbers& x, const Numbers& y, const Case& c,
                      const Encoding& e, Numbers& d_theta) {
  if (!c.encoded) {
    return;
  }
  const Numbers theta = values(e.theta), unit = values(e.reflect);
  for (std::size_t row = 0; row < x.size() / unit.size(); ++row) {
    const std::size_t at = row * unit.size();
    for (std::size_t i = 0; i < theta.size(); ++i) {
      const std::size_t even = at + 2 * i;
      d_theta[i] += c.position(row) * (d[even + 1] * y[even] - d[even] * y[even + 1]);
    }
    rotate(&d[at], -c.position(row), theta);
    reflect(&d[at], unit);
  }
  for (std::size_t i = 0; i < x.size(); ++i) {
    d[i] *= x[i] > 0 ? 1 : std::exp(x[i]);
  }
}

struct Answers {
  Numbers out, d_q, d_k, d_v, d_theta;
  double theta_scale = 1e-30;  // the largest d(theta) by the queries alone
};

// One query at a time.
Answers reference(const Case& c, const Encoding& e, const std::vector<at::Tensor>& given) {
  const Numbers raw_q = values(given[0]), raw_k = values(given[1]), v = values(given[2]);
  const Numbers g = values(given[3]), q = encoded(raw_q, c, e), k = encoded(raw_k, c, e);
  Answers a{Numbers(v.size()),
            Numbers(v.size()),
            Numbers(v.size()),
            Numbers(v.size()),
            Numbers(static_cast<std::size_t>(c.dim / 2)),
            1e-30};
  const auto width = static_cast<std::size_t>(c.dim);
  for (std::int64_t row = 0; row < kBatch * c.time * kHeads; ++row) {
    const std::int64_t b = row / kHeads / c.time, t = row / kHeads % c.time, h = row % kHeads;
    const std::int64_t first = c.kind == Kind::linear ? 0 : t / kBlock * kBlock;
    const auto seen = static_cast<std::size_t>(t - first + 1);
    const std::size_t here = c.place(b, t, h);
    Numbers score(seen), weight(seen), d_weight(seen);
    double total = 0, along = 0;
    for (std::size_t s = 0; s < seen; ++s) {
      const std::size_t at = c.place(b, first + static_cast<std::int64_t>(s), h);
      for (std::size_t i = 0; i < width; ++i) {
        score[s] += c.scale() * q[here + i] * k[at + i];
        d_weight[s] += g[here + i] * v[at + i];
      }
      total += std::exp(score[s]);
    }
    for (std::size_t s = 0; s < seen; ++s) {
      weight[s] = c.kind == Kind::linear    ? score[s]
                  : c.kind == Kind::softmax ? std::exp(score[s]) / total
                                            : std::max(score[s], 0.0);
      along += weight[s] * d_weight[s];
    }
    for (std::size_t s = 0; s < seen; ++s) {
      const std::size_t at = c.place(b, first + static_cast<std::int64_t>(s), h);
      const double d_score = c.kind == Kind::linear    ? d_weight[s]
                             : c.kind == Kind::softmax ? weight[s] * (d_weight[s] - along)
                             : score[s] > 0            ? d_weight[s]
                                                       : 0;
      for (std::size_t i = 0; i < width; ++i) {
        a.out[here + i] += weight[s] * v[at + i];
        a.d_v[at + i] += weight[s] * g[here + i];
        a.d_q[here + i] += c.scale() * d_score * k[at + i];
        a.d_k[at + i] += c.scale() * d_score * q[here + i];
      }
    }
  }
  encoded_backward(a.d_q, raw_q, q, c, e, a.d_theta);
  for (const double each : a.d_theta) {
    a.theta_scale = std::max(a.theta_scale, std::abs(each));
  }
  encoded_backward(a.d_k, raw_k, k, c, e, a.d_theta);
  return a;
}

// q, k, v as the parts of one tensor, and the gradient of the output.
std::vector<at::Tensor> joint_operands(const Case& c) {
  const at::Tensor joint = normal({kBatch, c.time, 3, kHeads, c.dim}, 1).to(c.type);
  return {joint.select(2, 0), joint.select(2, 1), joint.select(2, 2),
          normal({kBatch, c.time, kHeads, c.dim}, 2).to(c.type)};
}

std::vector<at::Tensor> dense(const std::vector<at::Tensor>& given) {
  return {given[0].contiguous(), given[1].contiguous(), given[2].contiguous(), given[3]};
}

struct Results {
  at::Tensor out;
  AttentionOperands d;
  at::Tensor d_theta;
};

// Fills what is not a number wherever a kernel has to write first.
void poison(const at::Tensor& x) {
  at::Tensor(x).fill_(NAN);
}
void poison(const Scratch& scratch, std::int64_t count) {
  std::fill_n(scratch.data(), count, NAN);
}

// By the kernels of one instruction set, for heads [0, 4) and then the others, in both passes.
template <typename Shape>
void fill_common(Shape& shape, const Case& c, const AttentionOperands& x, const Results& r,
                 const Encoding& encoding, const LrpeTable& table) {
  shape.time = c.time;
  shape.heads = kHeads;
  shape.strides = x.strides();
  shape.gradient_strides = r.d.strides();
  shape.feature = feature_of(encoding);
  shape.lrpe = table.view();
}

Results by_kernels(const kernels::Kernels& set, const Case& c, const Encoding& e,
                   const std::vector<at::Tensor>& given) {
  const AttentionOperands x(given[0], given[1], given[2]);
  const LrpeTable table = table_of(e, c.time);
  const Results r{at::empty_like(given[3]), unfilled_gradients(x),
                  at::zeros({kBatch * kHeads, c.dim / 2}, at::kDouble)};
  for (const at::Tensor& each : {r.out, r.d.q, r.d.k, r.d.v}) {
    poison(each);
  }
  auto* d_theta = r.d_theta.mutable_data_ptr<double>();
  for (const auto& [first, last] : {std::pair{0, 4}, std::pair{4, 6}}) {
    if (c.kind == Kind::linear) {
      const std::int64_t floats = kernels::linear_attention_scratch(kHeads, c.dim, c.dim);
      const Scratch scratch(floats);
      kernels::LinearAttention shape{first, last, 0, 0, c.dim, c.dim, scratch.data()};
      fill_common(shape, c, x, r, e, table);
      poison(scratch, floats);
      set.linear_attention(shape, in(x.q), in(x.k), in(x.v), out(r.out), nullptr);
      poison(scratch, floats);
      set.linear_attention_backward(shape, in(x.q), in(x.k), in(x.v), in(given[3]), out(r.d.q),
                                    out(r.d.k), out(r.d.v), d_theta, {});
    } else {
      const std::int64_t floats = kernels::block_attention_scratch(kBlock, c.dim);
      const Scratch scratch(floats);
      kernels::BlockAttention shape{first,
                                    last,
                                    0,
                                    0,
                                    c.dim,
                                    kBlock,
                                    static_cast<float>(c.scale()),
                                    c.kind == Kind::softmax,
                                    false,
                                    {},
                                    scratch.data()};
      fill_common(shape, c, x, r, e, table);
      poison(scratch, floats);
      set.block_attention(shape, in(x.q), in(x.k), in(x.v), out(r.out));
      poison(scratch, floats);
      set.block_attention_backward(shape, in(x.q), in(x.k), in(x.v), in(given[3]), out(r.d.q),
                                   out(r.d.k), out(r.d.v), d_theta);
    }
  }
  return r;
}

// Shares of d(theta) against the whole. Queries' and keys' parts cancel, wholly for one token.
double theta_distance(const at::Tensor& shares, const Answers& expected) {
  const Numbers found = values(shares.sum(0));
  double difference = 0;
  for (std::size_t i = 0; i < found.size(); ++i) {
    difference = std::max(difference, std::abs(found[i] - expected.d_theta[i]));
  }
  return difference / expected.theta_scale;
}

class EncodedAttention : public testing::TestWithParam<std::tuple<Kind, std::int64_t>> {};

TEST_P(EncodedAttention, AgreesWithLoopsOnEveryInstructionSet) {
  const auto [kind, dim] = GetParam();
  for (const std::int64_t time : {1, 63, 64, 65, 200}) {
    for (const bool encodes : {false, true}) {
      for (const auto type : {at::kFloat, at::kBFloat16}) {
        const Case c{kind, time, dim, encodes, type};
        const Encoding e = encoding_of(c);
        const std::vector<at::Tensor> joint = joint_operands(c);
        const Answers expected = reference(c, e, joint);
        const double tolerance = type == at::kFloat ? 4e-6 : 0x1.02p-8;
        for (const auto* const* set = kernels::all_kernels(); *set != nullptr; ++set) {
          for (const bool strided_rows : {true, false}) {
            const Results found = by_kernels(**set, c, e, strided_rows ? joint : dense(joint));
            const std::string what = std::string((*set)->name) + ", time " + std::to_string(time) +
                                     ", " + (encodes ? "encoded" : "plain") +
                                     (strided_rows ? ", joint" : ", dense") +
                                     (type == at::kFloat ? "" : ", bf16");
            EXPECT_LT(distance(found.out, expected.out), tolerance) << what;
            EXPECT_LT(distance(found.d.q, expected.d_q), tolerance) << what;
            EXPECT_LT(distance(found.d.k, expected.d_k), tolerance) << what;
            EXPECT_LT(distance(found.d.v, expected.d_v), tolerance) << what;
            EXPECT_LT(theta_distance(found.d_theta, expected), 4e-6) << what;
            EXPECT_EQ(found.d.q.is_alias_of(found.d.v), strided_rows);
          }
        }
      }
    }
  }
}

// A number that is none in any operand makes the outputs of its time so, whatever the encoding.
TEST_P(EncodedAttention, PassesOnWhatIsNotANumber) {
  const auto [kind, dim] = GetParam();
  const Case c{kind, 70, dim, true, at::kFloat};
  for (const auto feature : {FeatureMap::elu1, FeatureMap::elu}) {
    const Encoding e = encoding_of(c, feature);
    for (const auto* const* set = kernels::all_kernels(); *set != nullptr; ++set) {
      for (std::size_t operand = 0; operand < 4; ++operand) {
        std::vector<at::Tensor> bad = dense(joint_operands(c));
        bad[operand] = bad[operand].clone();
        bad[operand].select(1, 40).select(1, 1).select(1, 5).fill_(NAN);
        const Results found = by_kernels(**set, c, e, bad);
        // The gradient of the output reaches the gradients only.
        const at::Tensor& reached = operand < 3 ? found.out : found.d.q;
        EXPECT_TRUE(reached.select(1, 40).select(1, 1).isnan().any().item<bool>())
            << (*set)->name << " operand " << operand;
        EXPECT_TRUE(reached.select(2, 0).isfinite().all().item<bool>()) << (*set)->name;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Kinds, EncodedAttention,
                         testing::Combine(testing::Values(Kind::linear, Kind::softmax, Kind::relu),
                                          testing::Values(8, 20, 64)));

class EncodedOperator : public testing::TestWithParam<std::tuple<Kind, FeatureMap>> {
 protected:
  Kind kind = std::get<0>(GetParam());
  Case c{kind, 130, 20, true, at::kFloat};
  Encoding e = encoding_of(c, std::get<1>(GetParam()));

  [[nodiscard]] at::Tensor attend(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                  const Encoding& encoding) const {
    if (kind == Kind::linear) {
      return linear_attention(q, k, v, {.encoding = encoding});
    }
    BlockAttentionOptions options;
    options.score = kind == Kind::softmax ? ScoreKind::softmax : ScoreKind::relu;
    options.block = kBlock;
    options.scale = c.scale();
    options.encoding = encoding;
    return block_attention(q, k, v, options);
  }
};

// Encoded on the fly, and by the operators for it before.
TEST_P(EncodedOperator, EqualsItsPartsOneAfterAnother) {
  const std::vector<at::Tensor> given = dense(joint_operands(c));
  std::vector<at::Tensor> results[2];
  for (const bool fused : {false, true}) {
    const at::Tensor q = leaf(given[0]), k = leaf(given[1]), v = leaf(given[2]);
    Encoding own = e;
    own.theta = leaf(e.theta);
    const at::Tensor y =
        fused ? attend(q, k, v, own) : attend(encode(q, own), encode(k, own), v, {});
    torch::autograd::backward({y}, {given[3]});
    results[fused] = {y.detach(), q.grad(), k.grad(), v.grad(), own.theta.grad()};
  }
  for (std::size_t i = 0; i < results[0].size(); ++i) {
    EXPECT_LT(distance(results[1][i], results[0][i]), 4e-6) << "result " << i;
  }
}

// From a joint projection to its gradient nothing is copied.
TEST_P(EncodedOperator, WritesTheGradientsOfOneTensorIntoOne) {
  const at::Tensor joint = leaf(normal({kBatch, c.time, 3 * kHeads * c.dim}, 1));
  std::vector<at::Tensor> parts = ops::split(joint, 3);
  std::vector<at::Tensor> seen(2);
  joint.register_hook([&seen](const at::Tensor& g) { seen[0] = g; });
  parts[1].register_hook([&seen](const at::Tensor& g) { seen[1] = g; });
  for (at::Tensor& part : parts) {
    part = part.view({kBatch, c.time, kHeads, c.dim});
  }
  attend(parts[0], parts[1], parts[2], e).sum().backward();
  EXPECT_TRUE(seen[0].is_contiguous());
  EXPECT_TRUE(seen[1].is_alias_of(seen[0]));
  EXPECT_TRUE(at::equal(seen[0].chunk(3, -1)[1], seen[1]));
}

TEST_P(EncodedOperator, GradientsDoNotDependOnTheNumberOfThreads) {
  const int before = at::get_num_threads();
  std::vector<at::Tensor> results[2];
  for (const int threads : {1, 2}) {
    at::set_num_threads(threads);
    const std::vector<at::Tensor> given = dense(joint_operands(c));
    const at::Tensor q = leaf(given[0]), k = leaf(given[1]), v = leaf(given[2]);
    Encoding own = e;
    own.theta = leaf(e.theta);
    const at::Tensor y = attend(q, k, v, own);
    torch::autograd::backward({y}, {given[3]});
    results[threads - 1] = {y.detach(), q.grad(), k.grad(), v.grad(), own.theta.grad()};
  }
  at::set_num_threads(before);
  for (std::size_t i = 0; i < results[0].size(); ++i) {
    EXPECT_TRUE(at::equal(results[0][i], results[1][i])) << "result " << i;
  }
}

INSTANTIATE_TEST_SUITE_P(Kinds, EncodedOperator,
                         testing::Combine(testing::Values(Kind::linear, Kind::softmax, Kind::relu),
                                          testing::Values(FeatureMap::elu1, FeatureMap::elu,
                                                          FeatureMap::relu, FeatureMap::silu,
                                                          FeatureMap::exp)));

TEST(EncodedSteps, GoOnFromTheStateAndThePosition) {
  const Case c{Kind::linear, 130, 20, true, at::kFloat};
  const std::vector<at::Tensor> given = joint_operands(c);
  Encoding e = encoding_of(c);
  const at::Tensor whole = linear_attention(given[0], given[1], given[2], {.encoding = e});
  LinearAttentionSums state(kBatch, kHeads, c.dim, c.dim, {}, at::kCPU);
  std::vector<at::Tensor> parts;
  for (const auto& [first, count] : {std::pair{0, 70}, std::pair{70, 1}, std::pair{71, 59}}) {
    const auto part = [&, begin = first, length = count](std::size_t i) {
      return given[i].narrow(1, begin, length);
    };
    e.first_position = kFirstPosition + first;
    parts.push_back(linear_attention_step(part(0), part(1), part(2), state, {.encoding = e}));
  }
  EXPECT_LT(distance(at::cat(parts, 1), whole), 2e-6);
}

}  // namespace
}  // namespace transnormer::ops
