#include "bench/decode_workload.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <limits>
#include <vector>

#include "model/flops.h"
#include "model/weights.h"
#include "ops/runtime/reused_memory.h"
#include "ops/runtime/short_loop.h"
#include "ops/weights/compute_type.h"
#include "ops/weights/few_rows.h"

namespace transnormer {
namespace {

constexpr std::int64_t kDecodeChunk = 512;  // tokens a pass while the context is read
constexpr std::int64_t kLeastDecodeSteps = 32;
constexpr int kSpeedPasses = 40;
constexpr std::int64_t kReadPart = 1 << 15;  // numbers

class DecodeWorkload final : public Workload {
 public:
  DecodeWorkload(const BenchCase& bench_case, const BenchOptions& options, const ModelSize& size)
      : batch_(bench_case.batch_size),
        length_(bench_case.length),
        model_(std::make_unique<TransNormer>(bench_case.model, size, options.device)) {
    initialize(*model_, 1);
    context_.compute = options.compute;
  }

  void begin_repeat() override {
    const at::NoGradGuard no_grad;
    state_ = model_->make_state(batch_);
    for (std::int64_t read = 0; read < length_; read += kDecodeChunk) {
      (void)model_->forward(random_tokens(std::min(kDecodeChunk, length_ - read)), context_,
                            &state_);
    }
    next_ = random_tokens(1);
    step();  // a cache that is just full grows now, at the cost of all its tokens
  }

  void step() override {
    const at::NoGradGuard no_grad;
    const ops::ReusedMemory::Use use(memory_);
    const at::Tensor hidden = model_->forward(next_, context_, &state_);
    next_ = model_->logits(hidden, context_).argmax(-1);
  }

  [[nodiscard]] std::int64_t most_steps_per_repeat() const override {
    return most_decode_steps(length_);
  }
  [[nodiscard]] std::int64_t position() const override { return state_.position; }
  [[nodiscard]] const TransNormer& model() const override { return *model_; }
  [[nodiscard]] std::int64_t tokens_per_step() const override { return batch_; }
  [[nodiscard]] double flops_per_step_token() const override {
    return flops_per_token(*model_, length_).forward();
  }

 private:
  [[nodiscard]] at::Tensor random_tokens(std::int64_t length) const {
    return at::randint(model_->size().vocab_size, {batch_, length},
                       at::dtype(at::kLong).device(model_->device()));
  }

  std::int64_t batch_;
  std::int64_t length_;
  std::unique_ptr<TransNormer> model_;
  ForwardContext context_;
  ops::ReusedMemory memory_;
  ModelState state_;
  at::Tensor next_;
};

template <typename Pass>
double best_seconds(const Pass& pass) {
  double best = std::numeric_limits<double>::infinity();
  for (int i = 0; i < kSpeedPasses; ++i) {
    const auto began = std::chrono::steady_clock::now();
    pass();
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - began;
    best = std::min(best, took.count());
  }
  return best;
}

// Several sums, so that none waits for the one before.
std::int64_t sum_of(const std::int64_t* numbers, std::int64_t count) {
  constexpr std::int64_t kSums = 16;
  std::int64_t sums[kSums] = {};
  for (std::int64_t i = 0; i + kSums <= count; i += kSums) {
    for (std::int64_t j = 0; j < kSums; ++j) {
      sums[j] += numbers[i + j];
    }
  }
  std::int64_t all = 0;
  for (const std::int64_t sum : sums) {
    all += sum;
  }
  return all;
}

double reading_seconds(std::int64_t bytes) {
  const at::Tensor buffer = at::ones({bytes / 8}, at::kLong);
  const auto* numbers = buffer.const_data_ptr<std::int64_t>();
  std::atomic<std::int64_t> all = 0;
  return best_seconds([&] {
    ops::short_parallel_for(buffer.numel(), kReadPart, [&](std::int64_t first, std::int64_t last) {
      all += sum_of(numbers + first, last - first);
    });
  });
}

}  // namespace

std::int64_t most_decode_steps(std::int64_t length) {
  return std::max(kLeastDecodeSteps, length / 16);
}

std::unique_ptr<Workload> make_decode_workload(const BenchCase& bench_case,
                                               const BenchOptions& options, const ModelSize& size) {
  return std::make_unique<DecodeWorkload>(bench_case, options, size);
}

WeightSpeed measure_weight_speed(const TransNormer& model, std::int64_t rows,
                                 at::ScalarType compute) {
  const at::NoGradGuard no_grad;
  std::vector<at::Tensor> weights;
  std::vector<at::Tensor> inputs;
  std::int64_t bytes = 0;
  for (const NamedTensor& named : named_tensors(model)) {
    if (named.tensor.dim() == 2) {
      weights.push_back(ops::product_operand(named.tensor, compute));
      inputs.push_back(at::ones({rows, named.tensor.size(1)}, weights.back().options()));
      bytes += static_cast<std::int64_t>(weights.back().nbytes());
      if (!ops::few_rows_fit(inputs.back(), weights.back())) {
        return {};
      }
    }
  }
  const ops::ReusedMemory memory;
  const double products = best_seconds([&] {
    const ops::ReusedMemory::Use use(memory);
    for (std::size_t i = 0; i < weights.size(); ++i) {
      (void)ops::few_rows_product(inputs[i], weights[i], {});
    }
  });
  const auto read = static_cast<double>(bytes);
  return {read / products, read / reading_seconds(bytes)};
}

}  // namespace transnormer
