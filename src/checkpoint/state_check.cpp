#include "checkpoint/state_check.h"

#include <cmath>
#include <cstdint>
#include <limits>

#include "checkpoint/manifest.h"
#include "config/json_tree.h"
#include "optim/loss_scaler.h"
#include "util/units.h"

namespace transnormer {
namespace {

// More updates than a config can ask for, and more than enough tokens.
constexpr std::int64_t kMostSteps = 1'000'000'000'000'000;
constexpr std::int64_t kMostTokens = std::numeric_limits<std::int64_t>::max() / 4;
constexpr std::int64_t kMostSamples = kMostTokens;

class StateCheck {
 public:
  explicit StateCheck(const std::string& name) : name_(name) {}

  void count(const char* key, std::int64_t value, std::int64_t least, std::int64_t most) const {
    if (value < least || value > most) {
      fail(key, std::to_string(value),
           "an integer from " + std::to_string(least) + " to " + std::to_string(most));
    }
  }
  void amount(const char* key, double value) const {
    if (!(value >= 0) || std::isinf(value)) {
      fail(key, format_fixed(value, 3), "a finite number of at least 0");
    }
  }
  void finite(const char* key, double value) const {
    if (!std::isfinite(value)) {
      fail(key, format_fixed(value, 3), "a finite number");
    }
  }
  // A sum of `count` losses, in nats: none is beyond what single precision can tell. That of a
  // density may be negative.
  void mean(const char* key, double sum, std::int64_t count) const {
    constexpr double kMostNats = 1e9;
    if (!(std::abs(sum) <= kMostNats * static_cast<double>(count))) {
      fail(key, format_short(sum),
           "a sum of losses of " + std::to_string(count) + " tokens or updates");
    }
  }
  void scale(const char* key, double value) const {
    if (!(value >= 1) || value > LossScaler::kMaximum) {
      fail(key, format_fixed(value, 3),
           "a number from 1 to " + format_fixed(LossScaler::kMaximum, 0));
    }
  }

 private:
  [[noreturn]] void fail(const std::string& key, const std::string& value,
                         const std::string& expected) const {
    throw DamagedCheckpointError(name_ + ": damaged: " + printable(key, true) + " is " + value +
                                 ", expected " + expected);
  }

  const std::string& name_;
};

}  // namespace

void check_state(const TrainingState& state, const std::string& name) {
  const StateCheck check(name);
  check.count("step", state.step, 0, kMostSteps);
  check.count("tokens", state.tokens, 0, kMostTokens);
  check.count("optimizer_updates", state.optimizer_updates, 0, state.step);
  check.scale("loss_scale", state.loss_scale);
  check.count("scale_growth_count", state.scale_growth_count, 0, LossScaler::kGrowthInterval - 1);
  check.count("skipped_updates", state.skipped_updates, 0, state.step);
  check.count("consecutive_skips", state.consecutive_skips, 0, state.step);
  check.count("validated_step", state.validated_step, -1, state.step);
  check.count("best_step", state.best_step, -1, state.step);
  if (state.best_step >= 0) {
    check.finite("best_valid_loss", state.best_valid_loss);
  }
  check.count("validations_without_gain", state.validations_without_gain, 0, kMostSteps);
  check.count("divergence_retries", state.divergence_retries, 0, kMostSteps);
  check.count("samples_passed_over", state.samples_passed_over, 0, kMostSamples);
  check.count("micro_batch_size", state.micro_batch_size, 0, kMostSamples);
  check.amount("elapsed_s", state.elapsed_s);
  check.count("loss_tokens", state.loss_tokens, 0, state.tokens);
  check.mean("loss_sum", state.loss_sum, state.loss_tokens);
  constexpr std::int64_t kLongestWindow = 1'000'000;
  check.count("window_updates", state.window_updates, 0, kLongestWindow);
  check.mean("window_loss_sum", state.window_loss_sum, state.window_updates);
  if (!std::isnan(state.former_window_loss)) {
    check.mean("former_window_loss", state.former_window_loss, 1);
  }
  check.count("validation_context_window", state.validation_context_window, -1, kMostTokens);
  check.count("validation_tokens", state.validation_tokens, 0, kMostTokens);
  check.count("low_loss_step", state.low_loss_step, 0, state.step);
  for (const auto& [group, moments] : state.gradient_moments) {
    check.count(("gradient_moments." + group + ".count").c_str(), moments.count, 0, state.step);
    check.amount(("gradient_moments." + group + ".mean").c_str(), moments.mean);
    check.amount(("gradient_moments." + group + ".m2").c_str(), moments.m2);
  }
  check.count("threads", state.threads, 0, kMostSteps);
}

}  // namespace transnormer
