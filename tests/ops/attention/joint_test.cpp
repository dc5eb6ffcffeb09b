#include "ops/attention/joint.h"

#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "ops/reference.h"

namespace transnormer::ops {
namespace {

// Three parts, each seen as heads, with the given gradients.
struct Thirds {
  at::Tensor joint = leaf(normal({2, 5, 3 * 8}, 1));
  std::vector<at::Tensor> heads;

  Thirds() {
    for (const at::Tensor& part : ops::split(joint, 3)) {
      heads.push_back(part.view({2, 5, 2, 4}));
    }
  }
};

// What arrives at the joint tensor, before autograd gathers it.
at::Tensor arriving(const Thirds& x, const std::vector<at::Tensor>& gradients) {
  at::Tensor seen;
  x.joint.register_hook([&seen](const at::Tensor& g) { seen = g; });
  torch::autograd::backward(x.heads, gradients);
  return seen;
}

TEST(Joint, PartsAreViews) {
  const Thirds x;
  for (std::int64_t i = 0; i < 3; ++i) {
    const at::Tensor& part = x.heads[static_cast<std::size_t>(i)];
    EXPECT_TRUE(part.is_alias_of(x.joint));
    EXPECT_TRUE(at::equal(part.flatten(2), x.joint.narrow(2, 8 * i, 8)));
  }
}

TEST(Joint, AdjacentGradientsAreHandedOnWithoutACopy) {
  const Thirds x;
  const std::vector<at::Tensor> gradients = empty_like_parts(x.heads);
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_TRUE(gradients[i].is_alias_of(gradients[0]));
    EXPECT_FALSE(gradients[i].is_alias_of(x.joint));
    gradients[i].copy_(normal({2, 5, 2, 4}, 2 + i));
  }
  const at::Tensor seen = arriving(x, gradients);
  EXPECT_TRUE(seen.is_alias_of(gradients[0]));
  EXPECT_TRUE(at::equal(
      seen,
      at::cat({gradients[0].flatten(2), gradients[1].flatten(2), gradients[2].flatten(2)}, 2)));
}

TEST(Joint, OtherGradientsAreJoined) {
  const std::vector<at::Tensor> dense{normal({2, 5, 2, 4}, 2), normal({2, 5, 2, 4}, 3),
                                      normal({2, 5, 2, 4}, 4)};
  const auto joined = [](const std::vector<at::Tensor>& parts) {
    return at::cat({parts[0].flatten(2), parts[1].flatten(2), parts[2].flatten(2)}, 2);
  };
  EXPECT_TRUE(at::equal(arriving(Thirds{}, dense), joined(dense)));

  // Adjacent, but in another order.
  const Thirds x;
  std::vector<at::Tensor> turned = empty_like_parts(x.heads);
  std::swap(turned[0], turned[2]);
  for (std::size_t i = 0; i < 3; ++i) {
    turned[i].copy_(dense[i]);
  }
  EXPECT_TRUE(at::equal(arriving(x, turned), joined(dense)));
}

TEST(Joint, APartWithoutAGradientCountsAsZero) {
  const Thirds x;
  const at::Tensor g = normal({2, 5, 2, 4}, 2);
  torch::autograd::backward({x.heads[1]}, {g});
  EXPECT_TRUE(at::equal(x.joint.grad().narrow(2, 8, 8), g.flatten(2)));
  EXPECT_EQ(x.joint.grad().narrow(2, 0, 8).abs().sum().item<double>(), 0);
  EXPECT_EQ(x.joint.grad().narrow(2, 16, 8).abs().sum().item<double>(), 0);
}

TEST(Joint, PartsThatAreNotAdjacentGetDenseGradients) {
  const at::Tensor joint = normal({2, 5, 2, 12}, 1);
  const auto parts = joint.chunk(3, -1);  // adjacent in the heads, not in the rows
  for (const at::Tensor& made : empty_like_parts(parts)) {
    EXPECT_TRUE(made.is_contiguous());
  }
}

}  // namespace
}  // namespace transnormer::ops
