#include "train/ending.h"

#include <algorithm>
#include <limits>

#include "util/error.h"
#include "util/units.h"

namespace transnormer {
namespace {

constexpr std::int64_t kNoLimit = std::numeric_limits<std::int64_t>::max();

// An update that begins in the last epoch is made whole.
std::int64_t steps_of_epochs(const TrainConfig& config, std::int64_t samples) {
  if (config.max_epochs == 0 || config.max_epochs > (kNoLimit / 2) / samples) {
    return kNoLimit;
  }
  const std::int64_t positions = config.max_epochs * samples;
  return (positions + config.global_batch_size - 1) / config.global_batch_size;
}

bool is_out_of_patience(const Config& config, const TrainingState& state) {
  const std::int64_t patience = config.validation.patience;
  return patience > 0 && state.validations_without_gain >= patience;
}

}  // namespace

std::int64_t total_steps(const TrainConfig& config, std::int64_t samples) {
  const std::int64_t steps = config.steps == 0 ? kNoLimit : config.steps;
  const std::int64_t total = std::min(steps, steps_of_epochs(config, samples));
  if (total == kNoLimit) {
    throw UserError(
        "train.steps and train.max_epochs are both 0, so training would never end; set one of "
        "them");
  }
  return total;
}

std::optional<std::string> reason_to_end(const Config& config, const TrainingState& state,
                                         std::int64_t total) {
  if (is_out_of_patience(config, state)) {
    return "no better validation loss in " + format_count(state.validations_without_gain) +
           " validations (validation.patience)" +
           (state.best_step < 0 ? ""
                                : ", the best is that of step " + format_count(state.best_step));
  }
  if (state.step < total) {
    return std::nullopt;
  }
  if (total == config.train.steps) {
    return "reached train.steps, " + format_count(total);
  }
  return "reached train.max_epochs, " + format_count(config.train.max_epochs) + " (step " +
         format_count(total) + ")";
}

std::vector<std::string> keys_that_end(const Config& config, const TrainingState& state,
                                       std::int64_t samples) {
  std::vector<std::string> keys;
  const auto name_if = [&keys](bool ends, const char* key) {
    if (ends) {
      keys.emplace_back(key);
    }
  };
  name_if(is_out_of_patience(config, state), "validation.patience");
  name_if(config.train.steps > 0 && state.step >= config.train.steps, "train.steps");
  name_if(state.step >= steps_of_epochs(config.train, samples), "train.max_epochs");
  return keys;
}

}  // namespace transnormer
