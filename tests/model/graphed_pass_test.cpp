#include "model/graphed_pass.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

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
  EXPECT_EQ(plan.next(kind_of(1), 1), Step::replay);
  EXPECT_EQ(plan.next(kind_of(1), 2), Step::replay);
}

TEST(CapturePlan, LeavesItsGraphForNoUpdateThatComesOnceAnEpoch) {
  CapturePlan plan;
  (void)plan.next(kind_of(1), 0);
  (void)plan.next(kind_of(1), 1);
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
    EXPECT_EQ(plan.next(kind_of(1), update), update == 0 ? Step::run : Step::replay);
    EXPECT_EQ(plan.next(kind_of(2), update), Step::run);  // the rest
  }
}

TEST(CapturePlan, GoesOverToAKindThatStays) {
  CapturePlan plan;
  (void)plan.next(kind_of(1), 0);
  (void)plan.next(kind_of(1), 1);
  EXPECT_EQ(plan.next(kind_of(2), 2), Step::run);
  EXPECT_EQ(plan.next(kind_of(2), 3), Step::capture);
  EXPECT_EQ(plan.next(kind_of(2), 4), Step::replay);
  EXPECT_EQ(plan.next(kind_of(1), 5), Step::run);  // the old graph is gone
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

}  // namespace
}  // namespace transnormer
