#include "optim/flat_parameters.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <stdexcept>

#include "model/model_size.h"
#include "model/transnormer.h"
#include "optim/registry.h"

namespace transnormer {
namespace {

NamedTensor parameter(const std::string& name, const at::Tensor& value) {
  return {name, value.detach().set_requires_grad(true), true};
}

// Side by side in one storage: [3, 5] and [2, 5].
struct Joint {
  at::Tensor whole = at::arange(25, at::kFloat).view({5, 5});
  NamedTensor first = parameter("first", whole.narrow(0, 0, 3));
  NamedTensor second = parameter("second", whole.narrow(0, 3, 2));
};

bool is_aligned(const at::Tensor& tensor) {
  return reinterpret_cast<std::uintptr_t>(tensor.const_data_ptr()) % 64 == 0;
}

// What lies between the ranges and behind the last.
at::Tensor gaps_of(const at::Tensor& flat, const FlatBuffer& buffer) {
  at::Tensor is_gap = at::ones(flat.sizes(), at::kBool);
  for (const FlatRange& range : buffer.ranges) {
    is_gap.narrow(0, range.offset, range.count).fill_(false);
  }
  return flat.masked_select(is_gap);
}

bool is_zero(const at::Tensor& tensor) {
  return tensor.count_nonzero().item<std::int64_t>() == 0;
}

ModelConfig small_model() {
  ModelConfig config;
  config.layers = 2;
  config.dim = 20;  // biases of 20 and a feed-forward of 53 leave gaps
  config.heads = 2;
  return config;
}

TEST(FlatParameters, HoldTheValuesOfAllThatIsTrainedAndEveryTensorThatSharedThemFollows) {
  Joint joint;
  const NamedTensor alone = parameter("alone", at::full({7}, 0.5));
  const FlatParameters flat({joint.first, alone, joint.second});
  ASSERT_EQ(flat.buffers().size(), 1U);
  const at::Tensor& values = flat.buffers()[0].values;
  EXPECT_TRUE(at::equal(joint.whole, at::arange(25, at::kFloat).view({5, 5})));
  values.mul_(2);
  EXPECT_TRUE(at::equal(joint.whole, 2 * at::arange(25, at::kFloat).view({5, 5})));
  EXPECT_TRUE(at::equal(joint.second.tensor, joint.whole.narrow(0, 3, 2)));
  EXPECT_TRUE(at::equal(alone.tensor, at::ones({7})));
}

TEST(FlatParameters, StayInPlaceWhenTheFlatBuffersAreGone) {
  Joint joint;
  { const FlatParameters flat({joint.first, joint.second}); }
  EXPECT_TRUE(at::equal(joint.whole, at::arange(25, at::kFloat).view({5, 5})));
  const FlatParameters again({joint.first, joint.second});
  EXPECT_TRUE(at::equal(joint.whole, at::arange(25, at::kFloat).view({5, 5})));
}

TEST(FlatParameters, NameEachPlaceWithItsSizes) {
  Joint joint;
  const NamedTensor alone = parameter("alone", at::ones({7}));
  const FlatParameters flat({joint.first, alone, joint.second});
  const std::vector<FlatRange>& ranges = flat.buffers()[0].ranges;
  ASSERT_EQ(ranges.size(), 3U);
  EXPECT_EQ(ranges[0].name, "first");
  EXPECT_EQ(ranges[0].offset, 0);
  EXPECT_EQ(ranges[0].count, 15);
  EXPECT_EQ(ranges[1].name, "second");  // right behind it
  EXPECT_EQ(ranges[1].offset, 15);
  EXPECT_EQ(ranges[1].sizes, (std::vector<std::int64_t>{2, 5}));
  EXPECT_EQ(ranges[2].name, "alone");
  EXPECT_EQ(ranges[2].offset, 32);  // 64 bytes
  EXPECT_EQ(flat.buffers()[0].values.numel(), 48);
  EXPECT_TRUE(at::equal(ranges[1].view_of(flat.buffers()[0].values), joint.second.tensor));
}

TEST(FlatParameters, OfEachTypeLieInABufferOfTheirOwn) {
  const NamedTensor single = parameter("single", at::ones({3}));
  const NamedTensor twice = parameter("twice", at::ones({5}, at::kDouble));
  const FlatParameters flat({single, twice, parameter("more", at::ones({2}))});
  ASSERT_EQ(flat.buffers().size(), 2U);
  EXPECT_EQ(flat.buffers()[0].values.numel(), 32);
  EXPECT_EQ(flat.buffers()[1].values.numel(), 8);
  EXPECT_EQ(flat.buffers()[1].gradients.scalar_type(), at::kDouble);
  EXPECT_EQ(flat.views_of(flat.flat_gradients())[1].data_ptr(), twice.tensor.grad().data_ptr());
}

TEST(FlatParameters, HaveGradientsFromTheStartAndKeepThoseThatAreThere) {
  Joint joint;
  joint.second.tensor.mutable_grad() = at::full({2, 5}, 3.0);
  const FlatParameters flat({joint.first, joint.second});
  EXPECT_TRUE(is_zero(joint.first.tensor.grad()));
  EXPECT_TRUE(at::equal(joint.second.tensor.grad(), at::full({2, 5}, 3.0)));
  (joint.first.tensor * 2).sum().backward();
  EXPECT_EQ(flat.flat_gradients()[0].sum().item<double>(), 15 * 2 + 10 * 3);
}

TEST(FlatParameters, ThatAreFrozenStayWhereTheyWere) {
  const NamedTensor frozen{"frozen", at::ones({4}), false};
  const void* const memory = frozen.tensor.data_ptr();
  const FlatParameters flat({frozen, parameter("w", at::ones({4}))});
  EXPECT_EQ(frozen.tensor.data_ptr(), memory);
  EXPECT_FALSE(frozen.tensor.grad().defined());
  ASSERT_EQ(flat.parameters().size(), 1U);
  EXPECT_EQ(flat.buffers()[0].ranges.size(), 1U);
}

TEST(FlatParameters, ThatShareTheirStorageWithWhatIsNotTrainedAreRefused) {
  Joint joint;
  EXPECT_THROW(FlatParameters({joint.first}), std::logic_error);
  EXPECT_THROW(FlatParameters({joint.second}), std::logic_error);
  EXPECT_THROW(FlatParameters({joint.first, joint.second, joint.second}), std::logic_error);
  EXPECT_THROW(FlatParameters({parameter("t", at::ones({2, 3}).t())}), std::logic_error);
}

// A whole model, whose projections of one input are joint, through updates of an optimizer.
void expect_aligned_with_zero_gaps(const OptimizerConfig& config, std::size_t buffers) {
  TransNormer model(small_model(), {.vocab_size = 11, .max_positions = 16}, at::kCPU);
  initialize(model, 1);
  const std::vector<NamedTensor> tensors = named_tensors(model);
  std::vector<at::Tensor> before;
  for (const NamedTensor& named : tensors) {
    before.push_back(named.tensor.detach().clone());
  }
  const auto optimizer = make_optimizer(tensors, config);
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    EXPECT_TRUE(at::equal(tensors[i].tensor, before[i])) << tensors[i].name;
  }
  for (int update = 0; update < 3; ++update) {
    const at::Tensor tokens = at::randint(11, {2, 16}, at::kLong);
    ForwardContext context;
    model.logits(model.forward(tokens, context), context).logsumexp(-1).sum().backward();
    optimizer->step(1e-2);
  }
  ASSERT_EQ(optimizer->flat().buffers().size(), buffers);
  std::int64_t gaps = 0;
  for (const FlatBuffer& buffer : optimizer->flat().buffers()) {
    gaps += gaps_of(buffer.values, buffer).numel();
    EXPECT_TRUE(is_zero(gaps_of(buffer.values, buffer)));
    EXPECT_TRUE(is_zero(gaps_of(buffer.gradients, buffer)));
  }
  ASSERT_GT(gaps, 0);
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    if (tensors[i].name.ends_with(".weight")) {
      EXPECT_FALSE(at::equal(tensors[i].tensor, before[i])) << tensors[i].name;
    }
  }
  for (const NamedTensor& named : tensors) {
    const bool is_behind_another =
        named.name.ends_with("k_proj.weight") || named.name.ends_with("v_proj.weight") ||
        named.name.ends_with("k_proj.bias") || named.name.ends_with("v_proj.bias") ||
        named.name.ends_with("up_proj.weight") || named.name.ends_with("up_proj.bias");
    if (named.trainable && !is_behind_another) {
      EXPECT_TRUE(is_aligned(named.tensor)) << named.name;
      EXPECT_TRUE(is_aligned(named.tensor.grad())) << named.name;
    }
  }
}

TEST(FlatParameters, OfAModelAreAlignedAndTheGapsBetweenThemStayZero) {
  expect_aligned_with_zero_gaps({}, 1);
}

TEST(FlatParameters, OfAModelAreSoWithEachOptimizerAndWithoutDecayOfSome) {
  for (const auto& [rule, buffers] :
       {std::pair<OptimizerRule, std::size_t>("adamw", 1), {"lion", 1}, {"muon", 2}}) {
    OptimizerConfig config;
    config.rule = rule;
    config.weight_decay = 0.1;
    config.no_decay = {"*.bias", "*k_proj.weight"};
    SCOPED_TRACE(rule.name());
    expect_aligned_with_zero_gaps(config, buffers);
  }
}

TEST(FlatParameters, OfSeveralKindsHaveBuffersOfTheirOwnAndNoStorageOfTwo) {
  Joint joint;
  const NamedTensor alone = parameter("alone", at::ones({7}));
  const auto kind = [](const NamedTensor& tensor) -> std::size_t { return tensor.name == "alone"; };
  const FlatParameters flat({joint.first, alone, joint.second}, kind);
  ASSERT_EQ(flat.buffers().size(), 2U);
  EXPECT_EQ(flat.buffers()[0].kind, 0U);
  EXPECT_EQ(flat.buffers()[0].ranges.size(), 2U);
  EXPECT_EQ(flat.buffers()[1].kind, 1U);
  EXPECT_EQ(flat.buffers()[1].ranges[0].name, "alone");
  Joint other;
  EXPECT_THROW(FlatParameters({other.first, other.second},
                              [](const NamedTensor& tensor) -> std::size_t {
                                return tensor.name == "second";
                              }),
               std::logic_error);
}

}  // namespace
}  // namespace transnormer
