// Heads whose widths are neither each other's nor the model's, against plain double precision.
#include <gtest/gtest.h>

#include <cmath>

#include "model/attention/attention.h"
#include "model/initializer.h"
#include "model/models.h"
#include "ops/attention/block_attention.h"
#include "ops/attention/linear_attention.h"
#include "util/error.h"

namespace transnormer::test {
namespace {

constexpr HeadShape kShape{.heads = 3, .key_dim = 4, .value_dim = 5};
constexpr std::int64_t kDim = 14;

class Odd : public ProjectedAttention {
 public:
  Odd(const AttentionSettings& settings, bool softmax)
      : ProjectedAttention(settings, kShape, 1, NormKind::none), softmax_(softmax) {}
  [[nodiscard]] std::unique_ptr<AttentionState> make_state(std::int64_t) const override {
    return nullptr;
  }
  [[nodiscard]] double flops_per_token(std::int64_t) const override { return 0; }
  [[nodiscard]] StateBytes state_bytes(at::ScalarType) const override { return {}; }

 protected:
  [[nodiscard]] at::Tensor attend(const Projected& in, const ForwardContext& context,
                                  AttentionState*) override {
    const auto& [q, k, v, x] = in;
    if (softmax_) {
      return ops::block_attention(
          q, k, v, {.block = 0, .scale = 0.5, .dropout_key = {}, .visibility = context.visibility});
    }
    return ops::linear_attention(q, k, v, {.visibility = context.visibility});
  }

 private:
  bool softmax_;
};

// The same in double, from the attention's own weights.
at::Tensor reference(Odd& attention, const at::Tensor& x, bool softmax) {
  const auto parameters = attention.named_parameters();
  const auto project = [&](const char* name, const at::Tensor& in) {
    return at::linear(in, parameters[std::string(name) + ".weight"].to(at::kDouble),
                      parameters[std::string(name) + ".bias"].to(at::kDouble));
  };
  const auto heads = [&](const char* name) {
    return project(name, x.to(at::kDouble)).unflatten(-1, {3, -1}).transpose(1, 2);
  };
  at::Tensor scores = at::matmul(heads("q_proj"), heads("k_proj").transpose(2, 3));
  const at::Tensor seen = at::ones({x.size(1), x.size(1)}, at::kBool).tril();
  scores = softmax ? at::softmax((scores * 0.5).masked_fill(seen.logical_not(), -INFINITY), -1)
                   : scores.masked_fill(seen.logical_not(), 0);
  return project("out_proj", at::matmul(scores, heads("v_proj")).transpose(1, 2).flatten(2));
}

TEST(ProjectedAttention, TakesWidthsOfKeysAndValuesFreeOfEachOtherAndOfTheModel) {
  for (const bool softmax : {false, true}) {
    Odd attention({.dim = kDim, .heads = 3}, softmax);
    for (const auto& child : attention.named_children()) {
      dynamic_cast<Initializable&>(*child.value()).initialize(Initializer(5), child.key() + ".");
    }
    const at::Tensor x = at::cos(at::arange(2 * 13 * kDim).view({2, 13, kDim}) * 0.37);
    const at::Tensor weights = at::sin(at::arange(2 * 13 * kDim).view({2, 13, kDim}) * 0.91);
    const at::Tensor y = attention.forward(x, {}, nullptr);
    const at::Tensor expected = reference(attention, x, softmax);
    EXPECT_LT(relative_error(y, expected.to(at::kFloat)), 1e-5);
    (y * weights).sum().backward();
    std::vector<at::Tensor> ours;
    for (const at::Tensor& parameter : attention.parameters()) {
      ours.push_back(parameter.grad().clone());
      parameter.mutable_grad().reset();
    }
    (expected * weights).sum().backward();
    const auto named = attention.named_parameters();
    ASSERT_EQ(ours.size(), 8U);
    for (std::size_t i = 0; i < ours.size(); ++i) {
      const at::Tensor wanted = named[i].value().grad();
      EXPECT_LT((ours[i] - wanted).norm().item<double>(),
                1e-4 * std::max(1.0, wanted.norm().item<double>()))
          << named[i].key();
    }
  }
}

TEST(ProjectedAttention, TurnsKeysOfItsOwnWidthAndRefusesAnOddOneInOneLine) {
  // Heads of the usual width would be 13 wide.
  EXPECT_NO_THROW(Odd({.dim = 39, .heads = 3, .lrpe = true}, false));
  EXPECT_NO_THROW(Lrpe(4, at::kCPU));
  try {
    const Lrpe odd(5, at::kCPU);
    FAIL() << "was taken";
  } catch (const UserError& error) {
    ASSERT_EQ(error.faults().size(), 1U);
    EXPECT_TRUE(error.faults()[0].starts_with("model.lrpe: expected an even width"));
    EXPECT_TRUE(error.faults()[0].ends_with("got 5"));
  }
}

TEST(ProjectedAttention, HasTensorsOfThoseWidthsInItsGroups) {
  const Odd attention({.dim = kDim, .heads = 3, .device = at::kMeta}, false);
  const std::vector<ParameterGroup> groups = attention.groups();
  ASSERT_EQ(groups.size(), 4U);
  EXPECT_EQ(groups[0].name, "q_proj");
  EXPECT_EQ(groups[0].parameters[0].sizes(), (std::vector<std::int64_t>{12, kDim}));
  EXPECT_EQ(groups[2].name, "v_proj");
  EXPECT_EQ(groups[2].parameters[0].sizes(), (std::vector<std::int64_t>{15, kDim}));
  EXPECT_EQ(groups[3].parameters[0].sizes(), (std::vector<std::int64_t>{kDim, 15}));
  EXPECT_EQ(attention.kept_bytes_per_token(at::kFloat), 4 * (2 * 12 + 3 * 15));
}

}  // namespace
}  // namespace transnormer::test
