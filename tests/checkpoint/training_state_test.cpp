#include "checkpoint/training_state.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "checkpoint/fixture.h"

namespace transnormer {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

// No two fields alike, so that mixed-up fields show.
TrainingState full_state() {
  TrainingState state;
  state.step = 1;
  state.tokens = (std::int64_t{1} << 53) + 1;
  state.optimizer_updates = 3;
  state.loss_scale = 65536;
  state.scale_growth_count = 5;
  state.skipped_updates = 6;
  state.consecutive_skips = 7;
  state.validated_step = 8;
  state.best_valid_loss = 0.1;
  state.best_valid_figures["accuracy"] = 0.3;
  state.best_step = 10;
  state.validations_without_gain = 11;
  state.finished = true;
  state.finish_reason = "patience \"out\"";
  state.elapsed_s = 1.0 / 3;
  state.loss_sum = 5e-324;
  state.loss_tokens = 16;
  state.metric_sums = {21, 1.0 / 7};
  state.window_loss_sum = 2.0 / 7;
  state.window_updates = 17;
  state.former_window_loss = 0.7;
  state.low_loss_step = 20;
  state.gradient_moments["all"] = {3, 2.0 / 3, 1e-300};
  state.gradient_moments["layers.0"] = {4, -1e300, 0.1 + 0.2};
  state.threads = 18;
  state.ranks = 4;
  state.divergence_retries = 2;
  state.samples_passed_over = 64;
  state.micro_batch_size = 8;
  state.device = "cpu";
  state.build = "build";
  state.train_data_digest = "digest";
  state.valid_data_digest = "third digest";
  state.validation_context_window = 19;
  state.validation_tokens = 2048;
  state.tokenizer_digest = "other digest";
  state.initial_weights_digest = "fourth digest";
  return state;
}

TEST(TrainingState, ComesBackBitForBit) {
  const TrainingState before = full_state();
  const TrainingState after = state_from_json(state_to_json(before), "state.json");
  EXPECT_EQ(after.step, before.step);
  EXPECT_EQ(after.tokens, before.tokens);
  EXPECT_EQ(after.optimizer_updates, before.optimizer_updates);
  EXPECT_EQ(after.loss_scale, before.loss_scale);
  EXPECT_EQ(after.scale_growth_count, before.scale_growth_count);
  EXPECT_EQ(after.skipped_updates, before.skipped_updates);
  EXPECT_EQ(after.consecutive_skips, before.consecutive_skips);
  EXPECT_EQ(after.validated_step, before.validated_step);
  EXPECT_EQ(after.best_valid_loss, before.best_valid_loss);
  EXPECT_EQ(after.best_valid_figures, before.best_valid_figures);
  EXPECT_EQ(after.best_step, before.best_step);
  EXPECT_EQ(after.validations_without_gain, before.validations_without_gain);
  EXPECT_EQ(after.finished, before.finished);
  EXPECT_EQ(after.finish_reason, before.finish_reason);
  EXPECT_EQ(after.elapsed_s, before.elapsed_s);
  EXPECT_EQ(after.loss_sum, before.loss_sum);
  EXPECT_EQ(after.loss_tokens, before.loss_tokens);
  EXPECT_EQ(after.metric_sums, before.metric_sums);
  EXPECT_EQ(after.window_loss_sum, before.window_loss_sum);
  EXPECT_EQ(after.window_updates, before.window_updates);
  EXPECT_EQ(after.former_window_loss, before.former_window_loss);
  EXPECT_EQ(after.low_loss_step, before.low_loss_step);
  EXPECT_EQ(after.gradient_moments, before.gradient_moments);
  EXPECT_EQ(after.threads, before.threads);
  EXPECT_EQ(after.device, before.device);
  EXPECT_EQ(after.build, before.build);
  EXPECT_EQ(after.train_data_digest, before.train_data_digest);
  EXPECT_EQ(after.valid_data_digest, before.valid_data_digest);
  EXPECT_EQ(after.validation_context_window, before.validation_context_window);
  EXPECT_EQ(after.validation_tokens, before.validation_tokens);
  EXPECT_EQ(after.tokenizer_digest, before.tokenizer_digest);
  EXPECT_EQ(after.initial_weights_digest, before.initial_weights_digest);
}

TEST(TrainingState, WritesWhatIsNotFiniteAsNullAndReadsItBack) {
  TrainingState state;
  state.best_valid_loss = std::numeric_limits<double>::quiet_NaN();
  const std::string text = state_to_json(state);
  EXPECT_TRUE(json::parse(text)["best_valid_loss"].is_null());
  EXPECT_TRUE(std::isnan(state_from_json(text, "state.json").best_valid_loss));
}

std::string reading_fault(const json& state) {
  return test::user_error_of([&] { (void)state_from_json(state.dump(), "some/state.json"); });
}

TEST(TrainingState, NamesWhatIsOfAWrongType) {
  const std::vector<std::pair<std::string, json>> wrong{
      {"step", 1.5},
      {"best_step", 18446744073709551615U},
      {"finished", 1},
      {"elapsed_s", "1"},
      {"device", 0},
      {"window_updates", "1"},
      {"gradient_moments", {{"all", {{"count", "1"}}}}},
      {"gradient_moments", {{"all", 1}}}};
  for (const auto& [key, value] : wrong) {
    json state = json::parse(state_to_json(full_state()));
    state[key] = value;
    EXPECT_THAT(reading_fault(state),
                HasSubstr("some/state.json: \"" + key + "\" has a wrong type"));
  }
}

TEST(TrainingState, WithoutOneOfItsFieldsHasADefaultThereUnlessGoingOnWouldBeWrong) {
  const json full = json::parse(state_to_json(full_state()));
  const json none = json::parse(state_to_json({}));
  const std::set<std::string> required{"step", "tokens", "optimizer_updates", "train_data_digest"};
  for (const auto& [key, value] : full.items()) {
    json state = full;
    state.erase(key);
    if (required.contains(key)) {
      EXPECT_THAT(reading_fault(state), HasSubstr("some/state.json: \"" + key + "\" is missing"));
      continue;
    }
    const json read = json::parse(state_to_json(state_from_json(state.dump(), "state.json")));
    EXPECT_EQ(read[key], none[key]) << key;
    EXPECT_NE(read[key], value) << key;
    EXPECT_EQ(read["step"], full["step"]);
  }
}

TEST(TrainingState, ACountWithoutItsSumCountsNothing) {
  const std::vector<std::pair<std::string, std::string>> pairs{
      {"best_step", "best_valid_loss"},
      {"loss_tokens", "loss_sum"},
      {"window_updates", "window_loss_sum"}};
  const json none = json::parse(state_to_json({}));
  for (const auto& [count, sum] : pairs) {
    for (const std::string& missing : {count, sum}) {
      json state = json::parse(state_to_json(full_state()));
      state.erase(missing);
      const json read = json::parse(state_to_json(state_from_json(state.dump(), "state.json")));
      EXPECT_EQ(read[count], none[count]) << missing;
      EXPECT_EQ(read[sum], none[sum]) << missing;
    }
  }
}

TEST(TrainingState, WithMomentsOfAGroupThatMissAFieldHasADefaultThere) {
  json state = json::parse(state_to_json(full_state()));
  state["gradient_moments"]["all"] = {{"count", 3}, {"mean", 0.5}};
  const TrainingState read = state_from_json(state.dump(), "state.json");
  EXPECT_EQ(read.gradient_moments.at("all"), (RunningMoments{3, 0.5, 0}));
  EXPECT_EQ(read.gradient_moments.at("layers.0"), full_state().gradient_moments.at("layers.0"));
}

TEST(TrainingState, RefusesWhatIsNoJsonObject) {
  for (const char* text : {"", "{", "[]", "null"}) {
    EXPECT_THAT(test::user_error_of([text] { (void)state_from_json(text, "state.json"); }),
                HasSubstr("state.json: not the state of a training"));
  }
}

TEST(RunningMoments, EqualTheTwoPassFormula) {
  const std::vector<double> values{1e6 + 1, 1e6 + 2, 1e6 + 4, 1e6 - 3};
  RunningMoments moments;
  double sum = 0;
  for (const double value : values) {
    moments.add(value);
    sum += value;
  }
  const double mean = sum / 4;
  double squares = 0;
  for (const double value : values) {
    squares += (value - mean) * (value - mean);
  }
  EXPECT_EQ(moments.count, 4);
  EXPECT_NEAR(moments.mean, mean, 1e-9);
  EXPECT_NEAR(moments.relative_std(), std::sqrt(squares / 4) / mean, 1e-15);
}

TEST(RunningMoments, AreZeroWhereUndefined) {
  RunningMoments moments;
  EXPECT_EQ(moments.relative_std(), 0);
  moments.add(0);
  EXPECT_EQ(moments.relative_std(), 0);
}

}  // namespace
}  // namespace transnormer
