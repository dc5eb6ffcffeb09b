#include "model/graphed_pass.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "ops/runtime/stop_check.h"

namespace transnormer {
namespace {

using Step = CapturePlan::Step;

PassKind kind_of(std::int64_t rows) {
  return {.sizes = {{"inputs", {rows, 16}}}, .compute = at::kBFloat16};
}

TEST(CapturePlan, CapturesAKindThatComesInASecondUpdateAndReplaysItFromThenOn) {
  CapturePlan plan;
  EXPECT_EQ(plan.next(kind_of(1), 0), Step::run);
  EXPECT_EQ(plan.next(kind_of(1), 0), Step::run);  // another micro-batch of the same update
  EXPECT_EQ(plan.next(kind_of(1), 1), Step::capture);
  plan.captured(kind_of(1));
  EXPECT_EQ(plan.next(kind_of(1), 1), Step::replay);
  EXPECT_EQ(plan.next(kind_of(1), 2), Step::replay);
}

TEST(CapturePlan, LeavesItsGraphForNoUpdateThatComesOnceAnEpoch) {
  CapturePlan plan;
  (void)plan.next(kind_of(1), 0);
  (void)plan.next(kind_of(1), 1);
  plan.captured(kind_of(1));
  for (std::int64_t update = 2; update < 8; update += 3) {
    EXPECT_EQ(plan.next(kind_of(2), update), Step::run);
    EXPECT_EQ(plan.next(kind_of(2), update), Step::run);
    EXPECT_EQ(plan.next(kind_of(1), update + 1), Step::replay);
    EXPECT_EQ(plan.next(kind_of(1), update + 2), Step::replay);
  }
}

TEST(CapturePlan, CapturesTheFirstKindOfUpdatesWhoseLastMicroBatchIsSmaller) {
  CapturePlan plan;
  for (std::int64_t update = 0; update < 4; ++update) {
    const Step first = update == 0 ? Step::run : update == 1 ? Step::capture : Step::replay;
    EXPECT_EQ(plan.next(kind_of(1), update), first);
    if (first == Step::capture) {
      plan.captured(kind_of(1));
    }
    EXPECT_EQ(plan.next(kind_of(1), update), update == 0 ? Step::run : Step::replay);
    EXPECT_EQ(plan.next(kind_of(2), update), Step::run);  // the rest
  }
}

TEST(CapturePlan, GoesOverToAKindThatStays) {
  CapturePlan plan;
  (void)plan.next(kind_of(1), 0);
  (void)plan.next(kind_of(1), 1);
  plan.captured(kind_of(1));
  EXPECT_EQ(plan.next(kind_of(2), 2), Step::run);
  EXPECT_EQ(plan.next(kind_of(2), 3), Step::capture);
  plan.captured(kind_of(2));
  EXPECT_EQ(plan.next(kind_of(2), 4), Step::replay);
  EXPECT_EQ(plan.next(kind_of(1), 5), Step::run);  // the old graph is gone
}

TEST(CapturePlan, ReplaysNothingWhereACaptureCameToNothing) {
  CapturePlan plan;
  (void)plan.next(kind_of(1), 0);
  (void)plan.next(kind_of(1), 1);
  plan.captured(kind_of(1));
  (void)plan.next(kind_of(2), 2);
  EXPECT_EQ(plan.next(kind_of(2), 3), Step::capture);
  EXPECT_EQ(plan.next(kind_of(1), 4), Step::run);  // the former graph is gone
  EXPECT_EQ(plan.next(kind_of(2), 5), Step::run);
  EXPECT_EQ(plan.next(kind_of(2), 6), Step::capture);
}

TEST(GraphedPass, RunsThePassAsItIsOnACpu) {
  int runs = 0;
  GraphedPass pass(
      {}, [&runs](const Tensors& batch, const ForwardContext& context, const at::Tensor& scale) {
        EXPECT_EQ(context.live, nullptr);
        ++runs;
        return (batch.at("inputs") + batch.at("targets")).sum() * scale;
      });
  const at::Tensor ones = at::ones({2, 3}, at::kLong);
  for (std::int64_t update = 0; update < 3; ++update) {
    ForwardContext context;
    context.update = update;
    EXPECT_EQ(pass.run({{"inputs", ones}, {"targets", ones}}, context, at::scalar_tensor(2.F))
                  .item<double>(),
              24);
  }
  EXPECT_EQ(runs, 3);
}

// A pass over one weight and one that it does not use, captured on the CPU by keeping its body.
class CapturedPass : public testing::Test {
 protected:
  using Replay = GraphedPass::Replay;

  // `change` is what a replay does wrong, behind the body.
  void make(std::function<void()> change = [] {}) {
    pass_.emplace(
        std::vector<at::Tensor>{weight, unused},
        [this](const Tensors& batch, const ForwardContext&, const at::Tensor& scale) {
          ++runs;
          if (std::exchange(stopped, false)) {
            throw ops::PassStopped();
          }
          const at::Tensor given = batch.at("inputs").to(at::kFloat);
          weight.mutable_grad().add_(given * scale);
          sums = (given * weight.detach()).sum().unsqueeze(0);
          return sums;
        },
        [this, change](std::function<void()> body) -> Replay {
          ++captures;
          return [this, change, body] {
            ++replays;
            body();
            change();
          };
        });
  }

  // One update of one pass; what it gives.
  double update(const at::Tensor& inputs) {
    ForwardContext context;
    context.update = updates++;
    weight.mutable_grad().zero_();
    return pass_->run({{"inputs", inputs}}, context, at::scalar_tensor(2.F)).item<double>();
  }

  void expect_right(const at::Tensor& inputs) {
    EXPECT_EQ(update(inputs), (inputs * weight.detach()).sum().item<double>());
    EXPECT_TRUE(at::equal(weight.grad(), 2 * inputs));
  }

  static at::Tensor with_zero_gradient(const at::Tensor& value) {
    at::Tensor leaf = value.requires_grad_();
    leaf.mutable_grad() = at::zeros_like(value);
    return leaf;
  }

  at::Tensor weight = with_zero_gradient(at::tensor({1.F, 2.F, 3.F}));
  at::Tensor unused = with_zero_gradient(at::ones({2}));
  at::Tensor sums;
  const at::Tensor x = at::tensor({4.F, -5.F, 6.F});
  std::optional<GraphedPass> pass_;
  std::int64_t updates = 0;
  bool stopped = false;  // the next pass, by what it asks on its way
  int runs = 0;
  int captures = 0;
  int replays = 0;
};

TEST_F(CapturedPass, IsReplayedOnceItGaveTheSameAsTheLaunchedOne) {
  make();
  for (int i = 0; i < 5; ++i) {
    expect_right(x + i);
  }
  EXPECT_EQ(captures, 1);
  EXPECT_EQ(replays, 4);
  EXPECT_EQ(pass_->fault(), "");
}

TEST_F(CapturedPass, IsLeftWhereAGradientHasAnotherNorm) {
  make([this] { weight.mutable_grad().mul_(1.002); });
  for (int i = 0; i < 5; ++i) {
    expect_right(x + i);
  }
  EXPECT_EQ(captures, 1);
  EXPECT_EQ(replays, 1);
  EXPECT_EQ(pass_->fault(), "a replay gave other gradients than the pass itself");
}

TEST_F(CapturedPass, IsLeftWhereTheLossIsAnother) {
  make([this] { sums.mul_(1.002); });
  for (int i = 0; i < 4; ++i) {
    expect_right(x);
  }
  EXPECT_EQ(replays, 1);
  EXPECT_EQ(pass_->fault(), "a replay gave another loss than the pass itself");
}

TEST_F(CapturedPass, IsLeftWhereAReplayGivesWhatIsNotANumber) {
  make([this] { unused.mutable_grad().fill_(NAN); });
  expect_right(x);
  expect_right(x);
  EXPECT_NE(pass_->fault(), "");
  EXPECT_TRUE(at::equal(unused.grad(), at::zeros({2})));
}

TEST_F(CapturedPass, MayDifferByRounding) {
  make([this] { weight.mutable_grad().mul_(1.0002); });
  for (int i = 0; i < 4; ++i) {
    (void)update(x);
  }
  EXPECT_EQ(replays, 3);
  EXPECT_EQ(pass_->fault(), "");
}

TEST_F(CapturedPass, IsTriedAgainAfterAPassThatOverflows) {
  make();
  const at::Tensor endless = at::full({3}, INFINITY);
  (void)update(endless);
  (void)update(endless);
  EXPECT_EQ(captures, 1);
  EXPECT_EQ(pass_->fault(), "");
  for (int i = 0; i < 4; ++i) {
    expect_right(x);
  }
  EXPECT_EQ(captures, 2);
  EXPECT_EQ(pass_->fault(), "");
}

TEST_F(CapturedPass, IsCapturedLaterWhereTheLaunchedOneWasStopped) {
  make();
  expect_right(x);
  stopped = true;
  EXPECT_THROW((void)update(x), ops::PassStopped);
  for (int i = 0; i < 4; ++i) {
    expect_right(x + i);
  }
  EXPECT_EQ(captures, 1);
  EXPECT_EQ(replays, 3);
  EXPECT_EQ(pass_->fault(), "");
}

TEST_F(CapturedPass, IsTriedOnGradientsOfZeroOnlyAndLosesNoneThatAreThere) {
  make();
  expect_right(x);
  ForwardContext context;
  context.update = updates++;
  weight.mutable_grad().fill_(1);
  (void)pass_->run({{"inputs", x}}, context, at::scalar_tensor(2.F));
  EXPECT_TRUE(at::equal(weight.grad(), 2 * x + 1));
  EXPECT_EQ(captures, 0);
}

}  // namespace
}  // namespace transnormer
