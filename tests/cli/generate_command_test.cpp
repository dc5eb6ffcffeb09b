// generate: several samples, JSON, and what it reads and leaves out.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "cli/workspace.h"

namespace transnormer {
namespace {

using nlohmann::json;
using testing::HasSubstr;

class GenerateCommand : public TrainedRun {
 protected:
  static std::string text_of(Arguments arguments, const std::string& input = "") {
    arguments.insert(arguments.begin(), {"generate", "run"});
    const Outcome outcome = workspace().run(arguments, input);
    EXPECT_EQ(outcome.status, 0) << outcome.err;
    return outcome.out;
  }
};

const Arguments kAsked{"--prompt", "the river", "--max-tokens", "20", "--seed", "7"};

Arguments with(Arguments arguments, const Arguments& more) {
  arguments.insert(arguments.end(), more.begin(), more.end());
  return arguments;
}

TEST_F(GenerateCommand, SamplesDifferAndEachIsTheSameAmongMore) {
  const json many = json::parse(text_of(with(kAsked, {"--samples", "20", "--json"})));
  const json few = json::parse(text_of(with(kAsked, {"--samples", "3", "--json"})));
  ASSERT_EQ(many.at("samples").size(), 20U);
  std::set<std::string> texts;
  for (std::size_t i = 0; i < 20; ++i) {
    texts.insert(many.at("samples")[i].at("text"));
    if (i < 3) {
      EXPECT_EQ(many.at("samples")[i], few.at("samples")[i]);
    }
  }
  EXPECT_EQ(texts.size(), 20U);
  // The first is the one text that is made without --samples.
  EXPECT_EQ(text_of(kAsked),
            "the river" + few.at("samples")[0].at("text").get<std::string>() + "\n");
}

TEST_F(GenerateCommand, JsonTellsWhatWasAskedAndWhatWasMade) {
  const json answer = json::parse(
      text_of(with(kAsked, {"--samples", "2", "--json", "--temperature", "0.5", "--top-k", "9",
                            "--repetition-penalty", "1.5", "--stop-at-eos"})));
  EXPECT_EQ(answer.at("prompt"), "the river");
  EXPECT_EQ(answer.at("seed"), 7);
  EXPECT_EQ(answer.at("temperature"), 0.5);
  EXPECT_EQ(answer.at("top_k"), 9);
  EXPECT_EQ(answer.at("top_p"), 1);
  EXPECT_EQ(answer.at("repetition_penalty"), 1.5);
  EXPECT_EQ(answer.at("max_tokens"), 20);
  for (const json& sample : answer.at("samples")) {
    EXPECT_EQ(sample.at("tokens"), sample.at("ids").size());
    EXPECT_EQ(sample.at("stopped").get<bool>(), sample.at("tokens") < 20);
    EXPECT_EQ(sample.at("text").get<std::string>().find('\n'), std::string::npos);
  }
}

TEST_F(GenerateCommand, OfAModelThatLearnedEndTokensStopsAtThemWithoutAWarning) {
  const Outcome outcome =
      workspace().run({"generate", "run", "--max-tokens", "5", "--stop-at-eos"});
  EXPECT_EQ(outcome.status, 0);
  EXPECT_THAT(outcome.err, testing::Not(HasSubstr("--stop-at-eos")));
}

TEST_F(GenerateCommand, PeopleSeeSamplesApart) {
  const std::string text = text_of(with(kAsked, {"--samples", "2"}));
  EXPECT_THAT(text, testing::StartsWith("--- sample 1 of 2 ---\nthe river"));
  EXPECT_THAT(text, HasSubstr("\n\n--- sample 2 of 2 ---\nthe river"));
  EXPECT_THAT(text_of(with(kAsked, {"--samples", "2", "--no-prompt"})),
              testing::Not(HasSubstr("---\nthe river")));
}

TEST_F(GenerateCommand, WithoutThePromptIsTheRest) {
  EXPECT_EQ("the river" + text_of(with(kAsked, {"--no-prompt"})), text_of(kAsked));
}

TEST_F(GenerateCommand, ReadsAPromptFromStandardInput) {
  EXPECT_EQ(text_of({"--prompt-file", "-", "--max-tokens", "20", "--seed", "7"}, "the river"),
            text_of(kAsked));
}

TEST_F(GenerateCommand, ALargePenaltyMakesMoreTokensDiffer) {
  const json answer = json::parse(text_of(
      {"--max-tokens", "16", "--temperature", "0", "--repetition-penalty", "1000", "--json"}));
  const auto ids = answer.at("samples")[0].at("ids").get<std::vector<int>>();
  const json plain = json::parse(text_of({"--max-tokens", "16", "--temperature", "0", "--json"}));
  const auto before = plain.at("samples")[0].at("ids").get<std::vector<int>>();
  EXPECT_GT(std::set<int>(ids.begin(), ids.end()).size(),
            std::set<int>(before.begin(), before.end()).size());
  EXPECT_EQ(text_of(with(kAsked, {"--repetition-penalty", "1"})), text_of(kAsked));
}

TEST_F(GenerateCommand, RefusesWhatIsOutOfRange) {
  expect_refused(workspace(), {"generate", "run", "--samples", "0"}, {"--samples is"});
  expect_refused(workspace(), {"generate", "run", "--samples", "many"}, {"--samples is"});
  for (const char* penalty : {"0", "-1", "1001", "nan"}) {
    expect_refused(workspace(), {"generate", "run", "--repetition-penalty", penalty},
                   {"--repetition-penalty is"});
  }
}

}  // namespace
}  // namespace transnormer
