#include "train/space.h"

#include <algorithm>
#include <filesystem>
#include <string>
#include <system_error>
#include <vector>

#include "config/splits.h"
#include "util/error.h"
#include "util/units.h"

namespace transnormer {
namespace {

double bytes_of(const std::vector<NamedTensor>& tensors) {
  double bytes = 0;
  for (const NamedTensor& named : tensors) {
    bytes += static_cast<double>(named.tensor.nbytes());
  }
  return bytes;
}

// Multiples of `every` in (step, total_steps].
std::int64_t times(std::int64_t every, std::int64_t step, std::int64_t total_steps) {
  return every > 0 ? total_steps / every - step / every : 0;
}

}  // namespace

std::int64_t checkpoints_to_come(const Config& config, std::int64_t step, std::int64_t total_steps,
                                 std::int64_t held) {
  const bool keeps_best =
      config.checkpoint.keep_best && config.validation.every > 0 && has_valid(config.data);
  const std::int64_t at_once = config.checkpoint.keep_last + 1 + (keeps_best ? 1 : 0);
  const std::int64_t saves = times(config.checkpoint.every, step, total_steps) +
                             (keeps_best ? times(config.validation.every, step, total_steps) : 0) +
                             1;
  return std::max<std::int64_t>(std::min(at_once - held, saves), 1);
}

void require_space(const TrainingRun& run) {
  const std::int64_t held = std::ssize(run.directory.checkpoint_steps()) - std::ssize(run.damaged);
  const std::int64_t count = checkpoints_to_come(run.config, run.state.step, run.total_steps, held);
  const std::vector<NamedTensor> model = named_tensors(*run.model);
  const std::vector<NamedTensor> average =
      run.average ? run.average->named(model) : std::vector<NamedTensor>{};
  const double bytes = static_cast<double>(count) *
                       (bytes_of(model) + run.optimizer->state_bytes() + bytes_of(average));
  std::error_code unknown;
  const auto space = std::filesystem::space(run.directory.path(), unknown);
  if (!unknown && static_cast<double>(space.available) < bytes) {
    throw WriteError(run.directory.path().string() + ": " + format_count(count) +
                     (count == 1 ? " checkpoint takes " : " checkpoints take ") +
                     format_bytes(bytes) + ", the disk has " +
                     format_bytes(static_cast<double>(space.available)) +
                     " left; make room, choose another --run-dir or a smaller "
                     "checkpoint.keep_last");
  }
}

}  // namespace transnormer
