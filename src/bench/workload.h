// What one step of a measurement does, by mode.
#pragma once

#include <cstdint>
#include <memory>

#include "bench/bench.h"
#include "model/transnormer.h"

namespace transnormer {

// Training clips here, so that clipping is part of what is measured.
inline constexpr double kBenchClipNorm = 1;

class Workload {
 public:
  virtual ~Workload() = default;
  // Before the first step, and before each repeat: makes what the steps before must not change the
  // same again. Not timed.
  virtual void begin_repeat() {}
  virtual void step() = 0;
  [[nodiscard]] virtual std::int64_t most_steps_per_repeat() const { return 1000; }
  // Tokens that the state of decoding has seen; 0 where there is none.
  [[nodiscard]] virtual std::int64_t position() const { return 0; }
  [[nodiscard]] virtual const TransNormer& model() const = 0;
  [[nodiscard]] virtual std::int64_t tokens_per_step() const = 0;
  [[nodiscard]] virtual double flops_per_step_token() const = 0;
};

[[nodiscard]] std::unique_ptr<Workload> make_workload(const BenchCase& bench_case,
                                                      const BenchOptions& options);

}  // namespace transnormer
