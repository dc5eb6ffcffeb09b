#include "checkpoint/training_state.h"

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>

#include "checkpoint/manifest.h"
#include "util/foreign_json.h"

namespace transnormer {
namespace {

using Json = nlohmann::ordered_json;

enum class Presence { required, optional };

// Every field once, for writing and reading alike.
template <typename State, typename Visitor>
void visit_fields(State& state, Visitor&& visit) {
  visit("step", state.step, Presence::required);
  visit("tokens", state.tokens, Presence::required);
  visit("optimizer_updates", state.optimizer_updates, Presence::required);
  visit("loss_scale", state.loss_scale);
  visit("scale_growth_count", state.scale_growth_count);
  visit("skipped_updates", state.skipped_updates);
  visit("consecutive_skips", state.consecutive_skips);
  visit("validated_step", state.validated_step);
  visit("best_valid_loss", state.best_valid_loss);
  visit("best_valid_figures", state.best_valid_figures);
  visit("best_step", state.best_step);
  visit("validations_without_gain", state.validations_without_gain);
  visit("finished", state.finished);
  visit("finish_reason", state.finish_reason);
  visit("divergence_retries", state.divergence_retries);
  visit("samples_passed_over", state.samples_passed_over);
  visit("micro_batch_size", state.micro_batch_size);
  visit("elapsed_s", state.elapsed_s);
  visit("loss_sum", state.loss_sum);
  visit("loss_tokens", state.loss_tokens);
  visit("metric_sums", state.metric_sums);
  visit("window_loss_sum", state.window_loss_sum);
  visit("window_updates", state.window_updates);
  visit("former_window_loss", state.former_window_loss);
  visit("low_loss_step", state.low_loss_step);
  visit("gradient_moments", state.gradient_moments);
  visit("threads", state.threads);
  visit("ranks", state.ranks);
  visit("device", state.device);
  visit("build", state.build);
  visit("train_data_digest", state.train_data_digest, Presence::required);
  visit("valid_data_digest", state.valid_data_digest);
  visit("validation_context_window", state.validation_context_window);
  visit("validation_tokens", state.validation_tokens);
  visit("tokenizer_digest", state.tokenizer_digest);
  visit("initial_weights_digest", state.initial_weights_digest);
}

template <typename Value>
Json write_value(const Value& value) {
  return value;
}

Json write_value(const RunningMoments& moments) {
  return {{"count", moments.count}, {"mean", moments.mean}, {"m2", moments.m2}};
}

Json write_value(const std::map<std::string, RunningMoments>& groups) {
  Json json = Json::object();
  for (const auto& [group, moments] : groups) {
    json[group] = write_value(moments);
  }
  return json;
}

using Parsed = nlohmann::json;

// What nlohmann would convert in silence (1.5 to 1, true to 1) is a fault here.
struct WrongType {};

void read_value(const Parsed& json, std::int64_t& value) {
  const std::optional<std::int64_t> integer = json_integer(json);
  if (!integer) {
    throw WrongType{};
  }
  value = *integer;
}

void read_value(const Parsed& json, double& value) {
  if (json.is_null()) {
    value = std::numeric_limits<double>::quiet_NaN();
  } else if (json.is_number()) {
    value = json.get<double>();
  } else {
    throw WrongType{};
  }
}

void read_value(const Parsed& json, bool& value) {
  if (!json.is_boolean()) {
    throw WrongType{};
  }
  value = json.get<bool>();
}

void read_value(const Parsed& json, std::string& value) {
  if (!json.is_string()) {
    throw WrongType{};
  }
  value = json.get<std::string>();
}

void read_value(const Parsed& json, std::vector<double>& values) {
  if (!json.is_array()) {
    throw WrongType{};
  }
  for (const Parsed& item : json) {
    read_value(item, values.emplace_back());
  }
}

void read_value(const Parsed& json, std::map<std::string, double>& values) {
  if (!json.is_object()) {
    throw WrongType{};
  }
  for (const auto& [name, value] : json.items()) {
    read_value(value, values[name]);
  }
}

void read_value(const Parsed& json, std::map<std::string, RunningMoments>& groups);

// Leaves the value as it is where the key is missing.
template <typename Value>
void read_key(const Parsed& json, const char* key, Value& value) {
  const auto found = json.find(key);
  if (found != json.end()) {
    read_value(*found, value);
  }
}

void read_value(const Parsed& json, std::map<std::string, RunningMoments>& groups) {
  if (!json.is_object()) {
    throw WrongType{};
  }
  for (const auto& [group, moments] : json.items()) {
    if (!moments.is_object()) {
      throw WrongType{};
    }
    RunningMoments& read = groups[group];
    read_key(moments, "count", read.count);
    read_key(moments, "mean", read.mean);
    read_key(moments, "m2", read.m2);
  }
}

// A count says nothing without its sum, nor a sum without its count: both get their defaults.
void reset_what_is_halved(const Parsed& json, TrainingState& state) {
  const TrainingState none;
  const auto reset = [&](const char* count, std::int64_t TrainingState::*count_field,
                         const char* sum, double TrainingState::*sum_field) {
    if (!json.contains(count) || !json.contains(sum)) {
      state.*count_field = none.*count_field;
      state.*sum_field = none.*sum_field;
    }
  };
  reset("best_step", &TrainingState::best_step, "best_valid_loss", &TrainingState::best_valid_loss);
  reset("loss_tokens", &TrainingState::loss_tokens, "loss_sum", &TrainingState::loss_sum);
  if (state.loss_tokens == none.loss_tokens) {
    state.metric_sums = none.metric_sums;
  }
  reset("window_updates", &TrainingState::window_updates, "window_loss_sum",
        &TrainingState::window_loss_sum);
}

}  // namespace

void RunningMoments::add(double value) {
  ++count;
  const double before = value - mean;
  mean += before / static_cast<double>(count);
  m2 += before * (value - mean);
}

double RunningMoments::relative_std() const {
  if (count == 0 || mean == 0) {
    return 0;
  }
  return std::sqrt(m2 / static_cast<double>(count)) / mean;
}

std::string state_to_json(const TrainingState& state) {
  Json json = Json::object();
  visit_fields(state, [&](const char* key, const auto& value, Presence = Presence::optional) {
    json[key] = write_value(value);
  });
  return json.dump(2) + '\n';
}

TrainingState state_from_json(const std::string& json, const std::string& name) {
  const Parsed parsed = parse_foreign_json(json);
  if (!parsed.is_object()) {
    throw DamagedCheckpointError(name + ": not the state of a training");
  }
  TrainingState state;
  visit_fields(state, [&](const char* key, auto& value, Presence presence = Presence::optional) {
    if (presence == Presence::required && !parsed.contains(key)) {
      throw DamagedCheckpointError(name + ": \"" + key + "\" is missing");
    }
    try {
      read_key(parsed, key, value);
    } catch (const WrongType&) {
      throw DamagedCheckpointError(name + ": \"" + key + "\" has a wrong type");
    }
  });
  reset_what_is_halved(parsed, state);
  return state;
}

}  // namespace transnormer
