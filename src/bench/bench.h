// Speed and memory of a model on random tokens: no data, no tokenizer.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>

#include "config/config.h"

namespace transnormer {

enum class BenchMode {
  train,   // forward, backward, clipping, optimizer
  infer,   // forward and the loss of every token, as evaluation does
  decode,  // one token at a time, the most likely fed back; each repeat begins anew after `length`
           // tokens were read and goes on for no more than a sixteenth of that, or 32
};

struct BenchCase {
  std::string attention;  // as it was asked for
  ModelConfig model;
  std::int64_t vocab_size = 0;
  std::int64_t length = 0;
  std::int64_t batch_size = 1;
};

struct BenchOptions {
  BenchMode mode = BenchMode::train;
  at::ScalarType compute = at::kFloat;
  at::Device device = at::kCPU;
  std::int64_t repeats = 5;
  OptimizerConfig optimizer;
  bool activation_checkpointing = false;
};

struct BenchFigures {
  double tokens_per_s = 0;             // of the best repeat
  double tokens_per_s_median = 0;      // of the repeats
  std::int64_t peak_memory_bytes = 0;  // CPU: of the whole process; CUDA: of the allocator
  double gflops = 0;                   // at tokens_per_s, by flops_per_token()
  // Of decoding on a CPU, else 0: bytes a second of the weights, by products of the batch's rows
  // alone, and by reading a buffer as large.
  double products_bytes_per_s = 0;
  double reading_bytes_per_s = 0;
};

// Throws UserError, with the memory it would take, where the case cannot fit on the device.
void require_memory(const BenchCase& bench_case, const BenchOptions& options);

// Builds the model with its initial weights, warms up, then times the repeats, each of as many
// steps as take a tenth of a second, as far as the mode allows.
[[nodiscard]] BenchFigures run_bench(const BenchCase& bench_case, const BenchOptions& options);

// GFLOP/s of one large plain product in this type, the best of several.
[[nodiscard]] double measure_product_gflops(at::ScalarType compute, at::Device device);

}  // namespace transnormer
