#include "train/prompts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <sstream>

#include "train/small_run.h"
#include "util/error.h"
#include "util/file.h"

namespace transnormer {
namespace {

using testing::HasSubstr;
using testing::Not;
using Sets = std::vector<std::string>;

constexpr const char* kPrompts = R"(validation.prompts=["the river", "and"])";

Sets sets_of(const SmallRun& runs, Sets more = {}) {
  Sets sets{"data.valid=" + (runs.path() / "valid.txt").string()};
  sets.insert(sets.end(), more.begin(), more.end());
  return sets;
}

std::vector<log::NoteEvent> samples_of(const Recorded& recorded) {
  std::vector<log::NoteEvent> samples;
  for (const log::NoteEvent& note : recorded.notes) {
    if (note.name == "sample") {
      samples.push_back(note);
    }
  }
  return samples;
}

TEST(Prompts, AreContinuedAfterEachValidationAndLeaveTheTrainingAsItIs) {
  const SmallRun runs;
  const auto plain = set_up(runs.request("plain", sets_of(runs)));
  const auto prompted = set_up(runs.request("prompted", sets_of(runs, {kPrompts})));
  Recorded without;
  Recorded with;
  ASSERT_EQ(run_loop(*plain, without), ExitStatus::done);
  ASSERT_EQ(run_loop(*prompted, with), ExitStatus::done);
  ASSERT_EQ(with.train.size(), without.train.size());
  for (std::size_t i = 0; i < with.train.size(); ++i) {
    EXPECT_EQ(with.train[i].loss, without.train[i].loss) << i;
  }
  expect_same_weights(runs, "plain", "prompted", 6);
  expect_same_state(runs, "plain", "prompted", 6);
  const std::vector<log::NoteEvent> samples = samples_of(with);
  ASSERT_EQ(samples.size(), 2 * with.valid.size());
  for (std::size_t i = 0; i < samples.size(); ++i) {
    EXPECT_EQ(samples[i].step, with.valid[i / 2].step);
    EXPECT_EQ(samples[i].texts[0].second, i % 2 == 0 ? "the river" : "and");
    EXPECT_GE(std::ssize(samples[i].texts[1].second), kPromptTokens);  // words, or line ends
    EXPECT_EQ(samples[i].message.find('\n'), std::string::npos);
    EXPECT_THAT(samples[i].message,
                HasSubstr(i % 2 == 0 ? "sample 1: the river" : "sample 2: and"));
  }
  EXPECT_THAT(samples_of(without), testing::IsEmpty());
}

TEST(Prompts, AreTheSameWhenTheStepIsMadeAgainAndOthersAtOtherSteps) {
  const SmallRun runs;
  const auto run = set_up(runs.request(
      "run", sets_of(runs, {kPrompts, "optimizer.lr=0", "schedule.warmup_init_lr=0"})));
  run->state.step = 2;
  const std::string first = continue_prompt(*run, 0, {});
  EXPECT_EQ(continue_prompt(*run, 0, {}), first);
  run->state.step = 4;
  EXPECT_NE(continue_prompt(*run, 0, {}), first);
}

TEST(Prompts, StandInTheMetricsWithPromptAndText) {
  const SmallRun runs;
  ASSERT_EQ(runs.train("run", sets_of(runs, {kPrompts})), ExitStatus::done);
  std::istringstream lines(read_file(runs.path() / "run" / "metrics.jsonl"));
  int samples = 0;
  for (std::string line; std::getline(lines, line);) {
    const auto event = nlohmann::json::parse(line);
    if (event.value("event", "") == "sample") {
      EXPECT_EQ(event.at("kind"), "event");
      EXPECT_EQ(event.at("prompt"), samples % 2 == 0 ? "the river" : "and");
      EXPECT_FALSE(event.at("text").get<std::string>().empty());
      ++samples;
    }
  }
  EXPECT_EQ(samples, 6);
}

TEST(Prompts, FillWhatATableOfPositionsLeavesAndAreRefusedWhereItLeavesNothing) {
  const SmallRun runs;
  const auto with = [&runs](const std::string& prompt) {
    return runs.request("run", sets_of(runs, {"model.position=learned",
                                              "validation.prompts=[\"" + prompt + "\"]"}));
  };
  std::string longest = "the";
  for (int i = 1; i < 15; ++i) {
    longest += " the";
  }
  {
    const auto run = set_up(with(longest));  // 15 words behind the first input, of 16 positions
    const std::string text = continue_prompt(*run, 0, {});
    EXPECT_THAT(text, Not(testing::IsEmpty()));
    EXPECT_EQ(text.find(' ', 1), std::string::npos) << text;  // one word or line end
  }
  try {
    (void)set_up(with(longest + " the"));
    FAIL() << "was not refused";
  } catch (const UserError& error) {
    EXPECT_THAT(error.what(), testing::AllOf(HasSubstr("validation.prompts"),
                                             HasSubstr("16 tokens"), HasSubstr("shorten")));
  }
}

TEST(Prompts, ThatAreNeverContinuedAreToldOf) {
  const SmallRun runs;
  const auto run = set_up(runs.request("run", {kPrompts}));  // without data.valid
  EXPECT_THAT(run->warnings, testing::Contains(HasSubstr("nothing is validated")));
}

TEST(Prompts, EndAtOnceWhenAskedTo) {
  const SmallRun runs;
  const auto run = set_up(runs.request("run", sets_of(runs, {kPrompts})));
  int asked = 0;
  EXPECT_EQ(continue_prompt(*run, 0, [&asked] { return ++asked == 3; }), "");
  EXPECT_EQ(asked, 3);
}

TEST(Prompts, OneLineIsCutBetweenCharacters) {
  EXPECT_EQ(in_one_line("a\nb\tc", 10), "a b c");
  EXPECT_EQ(in_one_line("0123456789", 8), "01234 ..");
  EXPECT_EQ(in_one_line("0123\u00fc6789", 8), "0123 ..");
  EXPECT_EQ(in_one_line("\x1b[1m", 10), " [1m");
}

}  // namespace
}  // namespace transnormer
