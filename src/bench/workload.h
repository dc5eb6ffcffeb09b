// What one step of a measurement does, by mode.
#pragma once

#include <cstdint>
#include <memory>

#include "bench/bench.h"

namespace transnormer {

// Decoding goes on through all of them, so its positions are bounded by this.
inline constexpr std::int64_t kMostStepsPerRepeat = 1000;

class Workload {
 public:
  virtual ~Workload() = default;
  virtual void step() = 0;
  [[nodiscard]] virtual std::int64_t tokens_per_step() const = 0;
  [[nodiscard]] virtual double flops_per_step_token() const = 0;
};

[[nodiscard]] std::unique_ptr<Workload> make_workload(const BenchCase& bench_case,
                                                      const BenchOptions& options);

}  // namespace transnormer
