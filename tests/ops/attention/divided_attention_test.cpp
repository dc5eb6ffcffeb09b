// Linear attention with division, decay and logarithms of features against plain loops in double.
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <cmath>

#include "ops/attention/linear_attention.h"
#include "ops/attention/logarithms.h"
#include "ops/reference.h"
#include "ops/runtime/operator_choices.h"

namespace transnormer::ops {
namespace {

struct Form {
  const char* name;
  bool lrpe = false;
  std::optional<FeatureMap> feature{};
  std::optional<double> floor{};
  bool logarithms = false;
  bool decays = false;
  double size = 1;  // of queries and keys
};

struct Shape {
  std::int64_t batch;
  std::int64_t time;
  std::int64_t heads;
  std::int64_t key_dim;
  std::int64_t value_dim;
};

using Parameter = std::tuple<Form, Shape, bool>;

// In double by the definition, differentiated by autograd.
at::Tensor plainly(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const Form& form,
                   const LinearAttentionOptions& options, bool causal) {
  const auto heads = [](const at::Tensor& x) { return x.transpose(1, 2); };
  const std::int64_t time = q.size(1);
  const auto feature = [&](const at::Tensor& x) {
    if (form.logarithms) {
      return x.exp();
    }
    return !form.feature                       ? x
           : *form.feature == FeatureMap::relu ? x.relu()
           : *form.feature == FeatureMap::elu1 ? at::elu(x) + 1
                                               : at::silu(x);
  };
  const auto rotated = [&](const at::Tensor& x) {
    if (!form.lrpe) {
      return x;
    }
    const at::Tensor u = options.encoding.reflect.to(at::kDouble);
    const at::Tensor y = x - 2 * (x * u).sum(-1, true) * u;
    const at::Tensor angle = at::arange(time, at::kDouble).view({1, time, 1, 1}) *
                             options.encoding.theta.to(at::kDouble);
    const at::Tensor pairs = y.unflatten(-1, {-1, 2});
    const at::Tensor a = pairs.select(-1, 0), b = pairs.select(-1, 1);
    return at::stack({a * angle.cos() - b * angle.sin(), a * angle.sin() + b * angle.cos()}, -1)
        .flatten(-2);
  };
  const at::Tensor phi_q = feature(q), phi_k = feature(k);
  at::Tensor scores = at::matmul(heads(rotated(phi_q)), heads(rotated(phi_k)).mT());
  at::Tensor weights = at::matmul(heads(phi_q), heads(phi_k).mT());
  if (form.decays) {
    const at::Tensor t = at::arange(time, at::kDouble);
    const at::Tensor steps = (t.unsqueeze(1) - t).abs();
    scores = scores * at::pow(options.decay.to(at::kDouble).view({-1, 1, 1}), steps);
  }
  if (causal) {
    scores = scores.tril();
    weights = weights.tril();
  }
  at::Tensor y = at::matmul(scores, heads(v));
  if (form.floor) {
    const at::Tensor sum = weights.sum(-1, true);
    y = y / (form.logarithms ? sum : sum.clamp_min(*form.floor));
  }
  return heads(y);
}

class DividedAttention : public testing::TestWithParam<Parameter> {
 protected:
  DividedAttention() : form(std::get<0>(GetParam())), causal(std::get<2>(GetParam())) {
    const Shape s = std::get<1>(GetParam());
    q = leaf(normal({s.batch, s.time, s.heads, s.key_dim}, 1) * form.size);
    k = leaf(normal({s.batch, s.time, s.heads, s.key_dim}, 2) * form.size);
    v = leaf(normal({s.batch, s.time, s.heads, s.value_dim}, 3));
    g = normal({s.batch, s.time, s.heads, s.value_dim}, 4);
    options.visibility.causal = causal;
    options.floor = form.floor;
    options.logarithms = form.logarithms;
    options.encoding.feature = form.feature;
    if (form.lrpe) {
      options.encoding.theta = leaf(normal({s.key_dim / 2}, 5));
      const at::Tensor u = normal({s.key_dim}, 6);
      options.encoding.reflect = u / u.norm();
    }
    if (form.decays) {
      options.decay = at::linspace(0.5, 0.97, s.heads, at::kFloat);
    }
  }

  void expect_agreement(double tolerance) {
    const auto wide = [](const at::Tensor& x) {
      return x.detach().to(at::kDouble).requires_grad_();
    };
    const at::Tensor q64 = wide(q), k64 = wide(k), v64 = wide(v);
    LinearAttentionOptions options64 = options;
    if (form.lrpe) {
      options64.encoding.theta = wide(options.encoding.theta);
    }
    const at::Tensor expected = plainly(q64, k64, v64, form, options64, causal);
    torch::autograd::backward({expected}, {g.to(at::kDouble)});
    const at::Tensor y = linear_attention(q, k, v, options);
    torch::autograd::backward({y}, {g});
    EXPECT_LT(relative(y, expected), tolerance);
    EXPECT_LT(relative(q.grad(), q64.grad()), tolerance) << "q";
    EXPECT_LT(relative(k.grad(), k64.grad()), tolerance) << "k";
    EXPECT_LT(relative(v.grad(), v64.grad()), tolerance) << "v";
    if (form.lrpe) {
      EXPECT_LT(relative(options.encoding.theta.grad(), options64.encoding.theta.grad()),
                tolerance * 10)
          << "theta";
    }
  }

  static double relative(const at::Tensor& actual, const at::Tensor& expected) {
    // Gradients of a token alone are zero.
    return ((actual.to(at::kDouble) - expected).norm() / (expected.norm() + 1)).item<double>();
  }

  Form form;
  bool causal;
  at::Tensor q, k, v, g;
  LinearAttentionOptions options;
};

// Where signed weights nearly cancel, a divisor magnifies what rounding leaves.
TEST_P(DividedAttention, AgreesWithItsDefinitionForwardAndBackward) {
  expect_agreement(form.feature || form.logarithms ? 3e-6 * form.size : 1e-4);
}

TEST_P(DividedAttention, ByTensorOperationsAgreesToo) {
  const ChoicesGuard plain({.kernels = false});
  expect_agreement(form.feature || form.logarithms ? 3e-6 * form.size : 1e-4);
}

TEST_P(DividedAttention, NeitherContentNorAmountOfPaddingMatters) {
  const at::NoGradGuard no_grad;
  const at::Tensor whole = linear_attention(q, k, v, options);
  const std::int64_t time = q.size(1);
  const at::Tensor places =
      at::cat({at::arange(2, 2 + time / 2), at::arange(5 + time / 2, 5 + time)});
  at::Tensor padding = at::ones({q.size(0), time + 7}, at::kBool);
  padding.index_fill_(1, places, 0);
  const auto padded = [&](const at::Tensor& x) {
    at::Tensor wide = normal({x.size(0), time + 7, x.size(2), x.size(3)}, 9) * 100;
    wide.index_copy_(1, places, x);
    return wide;
  };
  LinearAttentionOptions with = options;
  with.visibility.padding = padding;
  if (form.lrpe) {  // positions are the tokens' own
    at::Tensor positions = at::zeros({q.size(0), time + 7}, at::kLong);
    positions.index_copy_(1, places, at::arange(time).expand({q.size(0), time}));
    with.encoding.positions = positions;
  }
  const at::Tensor y = linear_attention(padded(q), padded(k), padded(v), with);
  EXPECT_LT(relative(y.index_select(1, places), whole.to(at::kDouble)), 2e-6 * form.size);
}

TEST_P(DividedAttention, GoesOnFromItsSums) {
  if (!causal) {
    return;  // there is no such form
  }
  const at::NoGradGuard no_grad;
  const at::Tensor whole = linear_attention(q, k, v, options);
  LinearAttentionSums sums(q.size(0), q.size(2), q.size(3), v.size(3), options, at::kCPU);
  std::vector<at::Tensor> parts;
  for (std::int64_t t = 0; t < q.size(1);) {
    const std::int64_t n = t == 0 ? std::max<std::int64_t>(q.size(1) - 5, 1) : 1;
    LinearAttentionOptions here = options;
    here.encoding.first_position = t;
    parts.push_back(
        linear_attention_step(q.narrow(1, t, n), k.narrow(1, t, n), v.narrow(1, t, n), sums, here));
    t += n;
  }
  EXPECT_LT(relative(at::cat(parts, 1), whole.to(at::kDouble)), 2e-6 * form.size);
}

TEST_P(DividedAttention, BitsDoNotDependOnWhatComesLater) {
  if (!causal) {
    return;
  }
  const at::NoGradGuard no_grad;
  const at::Tensor whole = linear_attention(q, k, v, options);
  for (std::int64_t t = 1; t < q.size(1); t += 7) {
    const auto changed = [&](const at::Tensor& x) {
      at::Tensor other = x.clone();
      other.slice(1, t).mul_(-1.7).add_(30);
      return other;
    };
    const at::Tensor y = linear_attention(changed(q), changed(k), changed(v), options);
    ASSERT_TRUE(at::equal(y.slice(1, 0, t), whole.slice(1, 0, t))) << "before " << t;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Forms, DividedAttention,
    testing::Combine(
        testing::Values(
            Form{.name = "Elu1", .feature = FeatureMap::elu1, .floor = 1e-6},
            Form{.name = "Elu1Lrpe", .lrpe = true, .feature = FeatureMap::elu1, .floor = 1e-6},
            Form{.name = "Floored", .floor = 1.0},
            Form{.name = "Decay", .lrpe = true, .feature = FeatureMap::elu1, .decays = true},
            Form{.name = "Exp", .floor = 0, .logarithms = true},
            Form{.name = "ExpUndivided", .logarithms = true},
            Form{.name = "ExpLarge", .floor = 0, .logarithms = true, .size = 25},
            Form{.name = "ExpLrpe", .lrpe = true, .floor = 0, .logarithms = true}),
        testing::Values(Shape{2, 1, 2, 4, 3}, Shape{2, 37, 3, 6, 5}, Shape{1, 200, 2, 20, 16},
                        Shape{2, 130, 2, 96, 64}),
        testing::Bool()),
    [](const auto& chosen) {
      const Shape& s = std::get<1>(chosen.param);
      return std::string(std::get<0>(chosen.param).name) + std::to_string(s.time) +
             (std::get<2>(chosen.param) ? "Causal" : "Bidirectional");
    });

}  // namespace
}  // namespace transnormer::ops
