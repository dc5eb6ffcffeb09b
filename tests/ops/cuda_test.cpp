// Every operator on CUDA against plain operations in double precision on the CPU, which
// operator_cases_test.cpp holds the CPU's operators to; and what only a GPU has.
#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <vector>

#include "dist/engine.h"
#include "ops/attention/block_attention.h"
#include "ops/attention/linear_attention.h"
#include "ops/cuda_device.h"
#include "ops/dropout.h"
#include "ops/operator_cases.h"
#include "ops/reference.h"
#include "ops/runtime/cuda_graph.h"
#include "ops/runtime/cuda_library.h"
#include "ops/runtime/kernel_view.h"
#include "ops/runtime/nccl.h"

namespace transnormer::ops {
namespace {

class CudaOperators : public CudaTest {};

#if TRANSNORMER_HAS_CUDA
TEST_F(CudaOperators, AreOurOwnKernels) {
  ASSERT_NE(cuda_library(), nullptr);
  for (const auto type : {at::kFloat, at::kBFloat16, at::kHalf}) {
    EXPECT_TRUE(kernel_serves(device, type, &kernels::Kernels::gated));
  }
  EXPECT_FALSE(kernel_serves(at::kCPU, at::kHalf, &kernels::Kernels::gated));
}
#endif

TEST_F(CudaOperators, AgreeWithPlainOnesInDoublePrecision) {
  for (const OperatorCase& tested : operator_cases()) {
    expect_like_reference(tested, device, at::kFloat, 2e-5);
    expect_like_reference(tested, device, at::kBFloat16, 2e-2);
    expect_like_reference(tested, device, at::kHalf, 4e-3);
  }
}

void expect_near(const Tensors& found, const Tensors& expected, const std::string& what) {
  ASSERT_EQ(found.size(), expected.size()) << what;
  for (std::size_t i = 0; i < found.size(); ++i) {
    EXPECT_LT(distance(found[i], expected[i]), 2e-5) << what << ", " << i;
  }
}

TEST_F(CudaOperators, LinearAttentionGoesOnFromAState) {
  const Tensors x{normal({3, 100, 2, 24}, 1), normal({3, 100, 2, 24}, 2),
                  normal({3, 100, 2, 24}, 3)};
  const auto run = [&x](at::Device where, LinearAttentionOptions options) {
    if (options.decay.defined()) {
      options.decay = options.decay.to(where);
    }
    LinearAttentionSums state(3, 2, 24, 24, options, where);
    Tensors parts;
    for (const auto& [first, count] : {std::pair{0, 70}, std::pair{70, 1}, std::pair{71, 29}}) {
      const auto part = [&, begin = first, length = count](std::size_t i) {
        return x[i].narrow(1, begin, length).to(where);
      };
      parts.push_back(
          linear_attention_step(part(0), part(1), part(2), state, options).to(at::kCPU));
    }
    parts.push_back(state.values.to(at::kCPU));
    if (state.keys.defined()) {
      parts.push_back(state.keys.to(at::kCPU));
    }
    return parts;
  };
  LinearAttentionOptions fading, divided;
  fading.decay = at::tensor({0.8F, 0.99F});
  divided.encoding.feature = FeatureMap::elu1;
  divided.floor = 1e-6;
  for (const LinearAttentionOptions& options : {LinearAttentionOptions{}, fading, divided}) {
    expect_near(run(device, options), run(at::kCPU, options), "linear attention in steps");
  }
}

TEST_F(CudaOperators, AttentionStepAgrees) {
  const Tensors x{normal({3, 20, 2, 24}, 1), normal({3, 20, 2, 24}, 2), normal({3, 20, 2, 24}, 3)};
  for (const auto score : {ScoreKind::softmax, ScoreKind::relu}) {
    const auto run = [&x, score](at::Device where) {
      return attention_step(x[0].narrow(1, 15, 5).to(where), x[1].to(where), x[2].to(where), score,
                            0.2);
    };
    expect_near({run(device)}, {run(at::kCPU)}, "attention step");
  }
}

TEST_F(CudaOperators, DropoutMasksAreEqualBitForBit) {
  const DropoutKey key{0x123456789ABCDEF, 1LL << 33, 5, 2, (1LL << 32) - 2};
  for (const std::int64_t elements : {1, 3, 4, 1021, 70001}) {
    for (const double p : {0.1, 0.5, 0.9}) {
      const at::Tensor mask = dropout_mask(5, elements, p, key, at::kCPU);
      EXPECT_TRUE(at::equal(dropout_mask(5, elements, p, key, device).to(at::kCPU), mask))
          << elements << " elements, p " << p;
      const at::Tensor ones = at::ones({5, elements}, at::device(device));
      EXPECT_TRUE(at::equal(dropout(ones, p, key).to(at::kCPU), mask))
          << elements << " elements, p " << p;
    }
  }
}

TEST_F(CudaOperators, AReplayMakesTheMasksOfItsOwnUpdate) {
  if (!CudaGraph::possible(device)) {
    GTEST_SKIP() << "the program was built without kernels for the GPU";
  }
  const at::Tensor x = at::ones({4, 1000}, at::device(device));
  const at::Tensor y = at::empty_like(x);
  const at::Tensor counters = at::zeros({2}, at::device(device).dtype(at::kLong));
  const DropoutKey live{
      .seed = 9,
      .layer = 3,
      .live = static_cast<const kernels::LiveCounters*>(counters.const_data_ptr())};
  const auto body = [&] { y.copy_(dropout(x, 0.4, live)); };
  body();
  y.zero_();
  const CudaGraph graph(body);
  EXPECT_EQ(y.abs().sum().item<double>(), 0);  // captured, not run
  for (const std::int64_t update : {4, 5}) {
    for (const std::int64_t sample : {0, 7}) {
      counters.copy_(at::tensor({update, sample}, at::kLong));
      graph.replay();
      const DropoutKey key{.seed = 9, .update = update, .layer = 3, .first_sample = sample};
      EXPECT_TRUE(at::equal(y, dropout(x, 0.4, key))) << update << ", " << sample;
    }
  }
}

TEST_F(CudaOperators, WhatFailsWhileItIsRecordedLeavesTheDeviceUsable) {
  if (!CudaGraph::possible(device)) {
    GTEST_SKIP() << "the program was built without kernels for the GPU";
  }
  const at::Tensor x = at::ones({4}, at::device(device));
  EXPECT_THROW(CudaGraph([&x] { (void)x.sum().item<double>(); }), c10::Error);
  EXPECT_EQ(x.sum().item<double>(), 4);
}

#if TRANSNORMER_HAS_NCCL
// More than one process needs more than one GPU (scripts/gpu_check.sh).
TEST_F(CudaOperators, HaveAnEngineForProcesses) {
  const auto engine = nccl_engines(device)({.store = c10::make_intrusive<c10d::HashStore>(),
                                            .rank = 0,
                                            .size = 1,
                                            .timeout = std::chrono::seconds(60)});
  std::vector<at::Tensor> x{at::full({1000}, 3.0, device)};
  engine->backend->allreduce(x)->wait();
  EXPECT_TRUE(at::equal(x[0].cpu(), at::full({1000}, 3.0)));
  std::vector<at::Tensor> half{at::full({1000}, 3.0, at::device(device).dtype(at::kBFloat16))};
  engine->backend->reduce(half)->wait();
  at::Tensor all = at::empty({5}, at::device(device).dtype(at::kLong));
  at::Tensor own = at::arange(5, at::device(device).dtype(at::kLong));
  engine->backend->_allgather_base(all, own)->wait();
  EXPECT_TRUE(at::equal(all, own));
  EXPECT_EQ(engine->backend->getError(), c10d::ErrorType::SUCCESS);
}
#endif

}  // namespace
}  // namespace transnormer::ops
