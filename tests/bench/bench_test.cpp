#include "bench/bench.h"

#include <ATen/Parallel.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "bench/workload.h"
#include "model/flops.h"
#include "model/weights.h"
#include "util/error.h"

namespace transnormer {
namespace {

BenchCase small_case() {
  at::set_num_threads(1);
  BenchCase bench_case;
  bench_case.attention = "t2";
  bench_case.model.layers = 2;
  bench_case.model.dim = 32;
  bench_case.model.heads = 2;
  bench_case.vocab_size = 40;
  bench_case.length = 70;
  bench_case.batch_size = 3;
  return bench_case;
}

BenchOptions options_for(BenchMode mode) {
  BenchOptions options;
  options.mode = mode;
  options.repeats = 2;
  return options;
}

TEST(Bench, CountsTheTokensOfAStep) {
  EXPECT_EQ(make_workload(small_case(), options_for(BenchMode::train))->tokens_per_step(), 210);
  EXPECT_EQ(make_workload(small_case(), options_for(BenchMode::infer))->tokens_per_step(), 210);
  EXPECT_EQ(make_workload(small_case(), options_for(BenchMode::decode))->tokens_per_step(), 3);
}

TEST(Bench, ATrainingStepCostsThreeForwardPasses) {
  const double forward =
      make_workload(small_case(), options_for(BenchMode::infer))->flops_per_step_token();
  EXPECT_GT(forward, 0);
  EXPECT_DOUBLE_EQ(
      make_workload(small_case(), options_for(BenchMode::train))->flops_per_step_token(),
      3 * forward);
}

TEST(Bench, ReportsTheBestAndTheMedianOfTheRepeats) {
  for (const BenchMode mode : {BenchMode::train, BenchMode::infer, BenchMode::decode}) {
    const BenchFigures figures = run_bench(small_case(), options_for(mode));
    const double flops = make_workload(small_case(), options_for(mode))->flops_per_step_token();
    EXPECT_GT(figures.tokens_per_s_median, 0);
    EXPECT_GE(figures.tokens_per_s, figures.tokens_per_s_median);
    EXPECT_GT(figures.peak_memory_bytes, 0);
    EXPECT_NEAR(figures.gflops, figures.tokens_per_s * flops * 1e-9, 1e-9 * figures.gflops);
  }
}

TEST(Bench, ATrainingStepClipsTheGradientsAndChangesTheWeights) {
  for (const at::ScalarType compute : {at::kFloat, at::kHalf}) {
    BenchOptions options = options_for(BenchMode::train);
    options.compute = compute;
    const auto workload = make_workload(small_case(), options);
    std::vector<at::Tensor> before;
    for (const NamedTensor& weight : named_tensors(workload->model())) {
      before.push_back(weight.tensor.detach().clone());
    }
    workload->begin_repeat();
    workload->step();
    double squares = 0;
    std::size_t i = 0;
    for (const NamedTensor& weight : named_tensors(workload->model())) {
      if (weight.trainable) {
        EXPECT_FALSE(at::equal(weight.tensor, before[i])) << weight.name << ' ' << compute;
        squares += std::pow(weight.tensor.grad().norm().item<double>(), 2);
      }
      ++i;
    }
    // The scale of the loss, 65,536, is out of the gradients again.
    EXPECT_GT(std::sqrt(squares), 0.01) << compute;
    EXPECT_LE(std::sqrt(squares), kBenchClipNorm * (1 + 1e-4)) << compute;
  }
}

TEST(Bench, EveryRepeatOfDecodingBeginsAtTheLength) {
  const auto workload = make_workload(small_case(), options_for(BenchMode::decode));
  for (int repeat = 0; repeat < 2; ++repeat) {
    workload->begin_repeat();
    EXPECT_EQ(workload->position(), 71);  // one token more is decoded before the clock starts
    workload->step();
    workload->step();
    EXPECT_EQ(workload->position(), 73);
  }
}

TEST(Bench, ARepeatOfDecodingIsShortBesideTheLength) {
  BenchCase bench_case = small_case();
  const auto most = [&bench_case] {
    return make_workload(bench_case, options_for(BenchMode::decode))->most_steps_per_repeat();
  };
  EXPECT_EQ(most(), 32);
  bench_case.length = 1600;
  EXPECT_EQ(most(), 100);
}

TEST(Bench, DecodesPastALearnedTableOfTheLength) {
  BenchCase bench_case = small_case();
  bench_case.model.position = PositionKind::learned;
  EXPECT_NO_THROW((void)run_bench(bench_case, options_for(BenchMode::decode)));
}

TEST(Bench, RefusesWhatTheDeviceCannotHold) {
  BenchCase bench_case = small_case();
  EXPECT_NO_THROW(require_memory(bench_case, options_for(BenchMode::train)));
  bench_case.batch_size = 1LL << 40;
  for (const BenchMode mode : {BenchMode::train, BenchMode::infer, BenchMode::decode}) {
    EXPECT_THROW(require_memory(bench_case, options_for(mode)), UserError);
  }
}

}  // namespace
}  // namespace transnormer
