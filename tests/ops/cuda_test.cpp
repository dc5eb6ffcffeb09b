// Every operator on CUDA against the same operator on the CPU, whose kernels are tested against
// plain loops: values and gradients, at sizes that no chunk, block or vector divides.
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include "ops/activation.h"
#include "ops/block_attention.h"
#include "ops/causal_linear_attention.h"
#include "ops/cuda_device.h"
#include "ops/dropout.h"
#include "ops/linear.h"
#include "ops/linear_cross_entropy.h"
#include "ops/lrpe.h"
#include "ops/norm.h"
#include "ops/reference.h"

namespace transnormer::ops {
namespace {

// Of the largest value, or of a tenth where all are smaller.
constexpr double kSingle = 2e-5;
constexpr double kHalf = 2e-2;
constexpr double kLeastScale = 0.1;

using Tensors = std::vector<at::Tensor>;

// An operator and what it is given, in fp32 on the CPU.
struct Case {
  Tensors activations;  // come in the type of the products
  Tensors parameters;   // stay fp32
  // (activations, parameters, type of the products) -> result
  std::function<at::Tensor(const Tensors&, const Tensors&, at::ScalarType)> apply;
};

Tensors leaves(const Tensors& inputs, at::Device device, at::ScalarType type) {
  Tensors result;
  for (const at::Tensor& input : inputs) {
    result.push_back(leaf(input.to(device, type)));
  }
  return result;
}

// The result and then every gradient of its weighted sum, on the CPU.
Tensors answers(const Case& tested, at::Device device, at::ScalarType type) {
  const Tensors activations = leaves(tested.activations, device, type);
  const Tensors parameters = leaves(tested.parameters, device, at::kFloat);
  const at::Tensor y = tested.apply(activations, parameters, type);
  EXPECT_EQ(y.device(), device);
  y.backward(normal(y.sizes(), 99).to(y.options()));
  Tensors result{y.detach().to(at::kCPU)};
  for (const Tensors& inputs : {activations, parameters}) {
    for (const at::Tensor& input : inputs) {
      if (input.grad().defined()) {
        EXPECT_EQ(input.grad().device(), device);
        EXPECT_EQ(input.grad().scalar_type(), input.scalar_type());
        result.push_back(input.grad().to(at::kCPU));
      }
    }
  }
  return result;
}

double difference(const at::Tensor& actual, const at::Tensor& expected) {
  const at::Tensor wanted = expected.to(at::kDouble);
  const double largest = wanted.abs().max().item<double>();
  return (actual.to(at::kDouble) - wanted).abs().max().item<double>() /
         std::max(largest, kLeastScale);
}

void expect_near(const Tensors& actual, const Tensors& expected, double tolerance,
                 const std::string& what) {
  ASSERT_EQ(actual.size(), expected.size()) << what;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    ASSERT_EQ(actual[i].sizes(), expected[i].sizes()) << what;
    EXPECT_LT(difference(actual[i], expected[i]), tolerance)
        << what << (i == 0 ? ", result" : ", gradient " + std::to_string(i));
  }
}

class CudaOperators : public CudaTest {
 protected:
  // bf16 is held to the fp32 answers for the same rounded inputs.
  void expect_agreement(Case tested, const std::string& what) const {
    expect_near(answers(tested, device, at::kFloat), answers(tested, at::kCPU, at::kFloat), kSingle,
                what + " in fp32");
    for (at::Tensor& input : tested.activations) {
      input = input.to(at::kBFloat16).to(at::kFloat);
    }
    expect_near(answers(tested, device, at::kBFloat16), answers(tested, at::kCPU, at::kFloat),
                kHalf, what + " in bf16");
  }
};

// [batch, time, heads, dim]
Tensors heads_of(std::int64_t time, std::int64_t dim, std::int64_t value_dim) {
  return {normal({3, time, 2, dim}, 1), normal({3, time, 2, dim}, 2),
          normal({3, time, 2, value_dim}, 3)};
}

TEST_F(CudaOperators, ActivationsAgree) {
  const Tensors x{normal({3, 37, 53}, 1), normal({3, 37, 53}, 2)};
  for (const auto kind : {Activation::silu, Activation::relu, Activation::gelu, Activation::none}) {
    const std::string name = "activation " + std::to_string(static_cast<int>(kind));
    expect_agreement(
        {{x[0]},
         {},
         [kind](const Tensors& a, const Tensors&, at::ScalarType) { return activate(a[0], kind); }},
        name);
    expect_agreement({x,
                      {},
                      [kind](const Tensors& a, const Tensors&, at::ScalarType) {
                        return gated(a[0], a[1], kind);
                      }},
                     "gated " + name);
  }
  for (const auto map : {FeatureMap::elu1, FeatureMap::elu}) {
    expect_agreement({{x[0]},
                      {},
                      [map](const Tensors& a, const Tensors&, at::ScalarType) {
                        return feature_map(a[0], map);
                      }},
                     "feature map " + std::to_string(static_cast<int>(map)));
  }
}

TEST_F(CudaOperators, NormsAgree) {
  constexpr double kEps = 1e-6;
  const Tensors x{normal({3, 29, 51}, 1)};
  const Tensors gains{normal({51}, 2), normal({51}, 3)};
  expect_agreement({x,
                    {},
                    [](const Tensors& a, const Tensors&, at::ScalarType type) {
                      return srms_norm(a[0], kEps, type);
                    }},
                   "srms_norm");
  expect_agreement({x,
                    {gains[0]},
                    [](const Tensors& a, const Tensors& p, at::ScalarType type) {
                      return rms_norm(a[0], p[0], kEps, type);
                    }},
                   "rms_norm");
  expect_agreement({x, gains,
                    [](const Tensors& a, const Tensors& p, at::ScalarType type) {
                      return layer_norm(a[0], p[0], p[1], kEps, type);
                    }},
                   "layer_norm");
}

TEST_F(CudaOperators, LinearAgrees) {
  const Tensors parameters{normal({31, 45}, 2), normal({31}, 3)};
  expect_agreement({{normal({3, 17, 45}, 1)},
                    parameters,
                    [](const Tensors& a, const Tensors& p, at::ScalarType type) {
                      return linear(a[0], p[0], p[1], type);
                    }},
                   "linear");
  expect_agreement({{normal({3, 17, 45}, 1)},
                    {parameters[0]},
                    [](const Tensors& a, const Tensors& p, at::ScalarType type) {
                      return linear(a[0], p[0], {}, type);
                    }},
                   "linear without bias");
}

TEST_F(CudaOperators, LrpeAgreesAlsoFarFromTheFirstPosition) {
  const at::Tensor theta = at::pow(10000.0, at::arange(12, at::kDouble) * (-2.0 / 24));
  const at::Tensor unit = normal({24}, 5);
  const Tensors parameters{theta.to(at::kFloat), unit / unit.norm()};
  for (const auto& [first, period] : {std::pair{0, 0}, std::pair{3, 8}, std::pair{100000, 0}}) {
    expect_agreement({{normal({3, 37, 2, 24}, 1)},
                      parameters,
                      [first, period](const Tensors& a, const Tensors& p, at::ScalarType) {
                        return lrpe(a[0], p[0], p[1], first, period);
                      }},
                     "lrpe from " + std::to_string(first) + ", period " + std::to_string(period));
  }
}

TEST_F(CudaOperators, CausalLinearAttentionAgreesAtAnyLength) {
  for (const std::int64_t time : {1, 63, 64, 65, 200}) {
    expect_agreement({heads_of(time, 24, 17),
                      {},
                      [](const Tensors& a, const Tensors&, at::ScalarType) {
                        return causal_linear_attention(a[0], a[1], a[2]);
                      }},
                     "linear attention over " + std::to_string(time));
  }
}

TEST_F(CudaOperators, CausalLinearAttentionGoesOnFromAState) {
  const Tensors x = heads_of(100, 24, 24);
  const auto run = [&x](at::Device where) {
    at::Tensor state = at::zeros({3, 2, 24, 24}, at::device(where));
    Tensors parts;
    for (const auto& [first, count] : {std::pair{0, 70}, std::pair{70, 1}, std::pair{71, 29}}) {
      const auto part = [&, begin = first, length = count](std::size_t i) {
        return x[i].narrow(1, begin, length).to(where);
      };
      parts.push_back(causal_linear_attention_step(part(0), part(1), part(2), state).to(at::kCPU));
    }
    parts.push_back(state.to(at::kCPU));
    return parts;
  };
  expect_near(run(device), run(at::kCPU), kSingle, "linear attention in steps");
}

TEST_F(CudaOperators, BlockAttentionAgreesWithAndWithoutDropout) {
  for (const std::int64_t block : {8, 64, 0}) {
    for (const auto score : {ScoreKind::softmax, ScoreKind::relu}) {
      for (const double dropout : {0.0, 0.3}) {
        for (const std::int64_t time : {1, 7, 100}) {
          const BlockAttentionOptions options{.score = score,
                                              .block = block,
                                              .scale = 0.2,
                                              .dropout = dropout,
                                              .dropout_key = {5, 4, 3, 2, 1000}};
          expect_agreement({heads_of(time, 24, 24),
                            {},
                            [options](const Tensors& a, const Tensors&, at::ScalarType) {
                              return block_attention(a[0], a[1], a[2], options);
                            }},
                           "block " + std::to_string(block) + ", score " +
                               std::to_string(static_cast<int>(score)) + ", dropout " +
                               std::to_string(dropout) + ", time " + std::to_string(time));
        }
      }
    }
  }
}

TEST_F(CudaOperators, AttentionStepAgrees) {
  const Tensors x = heads_of(20, 24, 24);
  for (const auto score : {ScoreKind::softmax, ScoreKind::relu}) {
    const auto run = [&x, score](at::Device where) {
      return attention_step(x[0].narrow(1, 15, 5).to(where), x[1].to(where), x[2].to(where), score,
                            0.2);
    };
    expect_near({run(device)}, {run(at::kCPU)}, kSingle, "attention step");
  }
}

TEST_F(CudaOperators, DropoutMasksAreEqualBitForBit) {
  const DropoutKey key{0x123456789ABCDEF, 1LL << 33, 5, 2, (1LL << 32) - 2};
  for (const std::int64_t elements : {1, 3, 4, 1021, 70001}) {
    for (const double p : {0.1, 0.5, 0.9}) {
      EXPECT_TRUE(at::equal(dropout_mask(5, elements, p, key, device).to(at::kCPU),
                            dropout_mask(5, elements, p, key, at::kCPU)))
          << elements << " elements, p " << p;
    }
  }
  expect_agreement(
      {{normal({4, 19, 27}, 1)},
       {},
       [key](const Tensors& a, const Tensors&, at::ScalarType) { return dropout(a[0], 0.3, key); }},
      "dropout");
}

at::Tensor some_targets(std::int64_t tokens, std::int64_t words) {
  at::Tensor targets = at::arange(tokens, at::kLong) * 31 % words;
  targets.slice(0, 3, tokens, 7).fill_(-1);
  return targets;
}

// The loss may only be differentiated with a gradient of 1.
Tensors loss_and_gradients(const at::Tensor& hidden, const at::Tensor& weight,
                           const at::Tensor& targets, at::Device where,
                           const LinearCrossEntropyOptions& options) {
  const at::Tensor h = leaf(hidden.to(where, options.compute)), w = leaf(weight.to(where));
  const CrossEntropy result = linear_cross_entropy(h, w, targets.to(where), options);
  result.loss.backward();
  return {result.loss.detach().to(at::kCPU), result.nll.to(at::kCPU), h.grad().to(at::kCPU),
          w.grad().to(at::kCPU)};
}

TEST_F(CudaOperators, LinearCrossEntropyAgreesInOneSliceAndInMany) {
  const auto rounded = [](const at::Tensor& x) { return x.to(at::kBFloat16).to(at::kFloat); };
  const at::Tensor hidden = rounded(normal({50, 24}, 1)), weight = rounded(normal({1037, 24}, 2));
  const at::Tensor targets = some_targets(50, 1037);
  for (const std::int64_t memory : {1LL, 7LL * 1037 * 4, 1LL << 30}) {
    LinearCrossEntropyOptions options{.scale = 0.37, .memory_bytes = memory};
    const Tensors expected = loss_and_gradients(hidden, weight, targets, at::kCPU, options);
    const std::string what = "cross entropy with " + std::to_string(memory) + " bytes";
    expect_near(loss_and_gradients(hidden, weight, targets, device, options), expected, kSingle,
                what + " in fp32");
    options.compute = at::kBFloat16;
    expect_near(loss_and_gradients(hidden, weight, targets, device, options), expected, kHalf,
                what + " in bf16");
  }
}

TEST_F(CudaOperators, LossesOfTokensAgreeAndIgnoredOnesAreZero) {
  const at::Tensor hidden = normal({50, 24}, 1), weight = normal({1037, 24}, 2);
  const at::Tensor targets = some_targets(50, 1037);
  const at::Tensor found =
      token_losses(hidden.to(device), weight.to(device), targets.to(device), {}).to(at::kCPU);
  expect_near({found}, {token_losses(hidden, weight, targets, {})}, kSingle, "token losses");
  EXPECT_TRUE(found.masked_select(targets.lt(0)).eq(0).all().item<bool>());
}

}  // namespace
}  // namespace transnormer::ops
