#include "bench/bench.h"

#include <ATen/ATen.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <vector>

#include "bench/decode_workload.h"
#include "bench/workload.h"
#include "ops/runtime/device_memory.h"
#include "ops/weights/compute_type.h"

namespace transnormer {
namespace {

constexpr double kLeastRepeatSeconds = 0.1;  // shorter ones measure the clock

// Waits for what a GPU has been given to do.
void synchronize(at::Device device) {
  if (!device.is_cpu()) {
    const c10::impl::VirtualGuardImpl guard(device.type());
    guard.synchronizeDevice(guard.getDevice().index());
  }
}

template <class Step>
double time_steps(const Step& step, std::int64_t count, at::Device device) {
  const auto began = std::chrono::steady_clock::now();
  for (std::int64_t i = 0; i < count; ++i) {
    step();
  }
  synchronize(device);
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const std::size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

}  // namespace

BenchFigures run_bench(const BenchCase& bench_case, const BenchOptions& options) {
  const ops::PeakMemory memory(options.device);
  const std::unique_ptr<Workload> workload = make_workload(bench_case, options);
  const auto step = [&workload] { workload->step(); };
  workload->begin_repeat();
  // A GPU's step is captured in the second one (see GraphedPass).
  (void)time_steps(step, options.device.is_cpu() ? 1 : 3, options.device);
  const double warm = time_steps(step, 1, options.device);
  const auto steps = std::clamp<std::int64_t>(std::llround(kLeastRepeatSeconds / warm), 1,
                                              workload->most_steps_per_repeat());

  std::vector<double> speeds;
  for (std::int64_t repeat = 0; repeat < options.repeats; ++repeat) {
    workload->begin_repeat();
    synchronize(options.device);
    const double seconds = time_steps(step, steps, options.device);
    speeds.push_back(static_cast<double>(steps * workload->tokens_per_step()) / seconds);
  }
  BenchFigures figures;
  figures.tokens_per_s = *std::max_element(speeds.begin(), speeds.end());
  figures.tokens_per_s_median = median(speeds);
  figures.peak_memory_bytes = memory.bytes();
  figures.gflops = figures.tokens_per_s * workload->flops_per_step_token() * 1e-9;
  if (options.mode == BenchMode::decode && options.device.is_cpu()) {
    const WeightSpeed speed =
        measure_weight_speed(workload->model(), bench_case.batch_size, options.compute);
    figures.products_bytes_per_s = speed.products;
    figures.reading_bytes_per_s = speed.reading;
  }
  return figures;
}

double measure_product_gflops(at::ScalarType compute, at::Device device) {
  const at::NoGradGuard no_grad;
  const at::ScalarType type = ops::half_by_float(device, compute) ? at::kFloat : compute;
  const std::int64_t side = device.is_cpu() ? 2048 : 8192;
  const at::Tensor a = at::rand({side, side}, at::dtype(type).device(device));
  const at::Tensor b = at::rand({side, side}, at::dtype(type).device(device));
  at::Tensor product = at::empty_like(a);
  const auto step = [&] { at::mm_out(product, a, b); };
  (void)time_steps(step, 1, device);
  double best = std::numeric_limits<double>::infinity();
  for (int repeat = 0; repeat < 5; ++repeat) {
    best = std::min(best, time_steps(step, 1, device));
  }
  return 2 * std::pow(static_cast<double>(side), 3) / best * 1e-9;
}

}  // namespace transnormer
