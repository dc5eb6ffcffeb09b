// Decoding as a measurement.
#pragma once

#include <memory>

#include "bench/workload.h"
#include "model/model_size.h"

namespace transnormer {

// Tokens that a repeat of decoding may add at most: few beside the length, so that it is measured
// at that length.
[[nodiscard]] std::int64_t most_decode_steps(std::int64_t length);

[[nodiscard]] std::unique_ptr<Workload> make_decode_workload(const BenchCase& bench_case,
                                                             const BenchOptions& options,
                                                             const ModelSize& size);

// Bytes a second of the weights, the best of several passes over all of them.
struct WeightSpeed {
  double products = 0;  // multiplied with `rows` rows, each weight by itself
  double reading = 0;   // a buffer as large read and summed up, by as many threads
};

// Of the matrices of a model on the CPU, in the type of the products.
[[nodiscard]] WeightSpeed measure_weight_speed(const TransNormer& model, std::int64_t rows,
                                               at::ScalarType compute);

}  // namespace transnormer
