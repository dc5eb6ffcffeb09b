#include "config/reader.h"

#include "config/support.h"

namespace transnormer {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

TEST(ConfigFaults, AreAllReportedTogetherInTheOrderOfTheirLines) {
  EXPECT_THAT(
      faults_of("{\n\"train\": {\"steps\": \"many\"},\n\"model\": {\"heds\": 4,\n\"dim\": 64,\n"
                "\"dim\": 0},\n\"optimiser\": {}\n}"),
      ElementsAre(
          "x.json:2: train.steps: expected an integer from 0 to 1000000000000000 (updates), got "
          "\"many\"",
          "x.json:3: model.heds: unknown key; did you mean \"model.heads\" (an integer from 1 to "
          "2147483647)?",
          "x.json:5: model.dim: given twice, first in line 4; expected each key once",
          "x.json:5: model.dim: expected an integer from 1 to 2147483647, got 0",
          "x.json:6: optimiser: unknown key; did you mean \"optimizer\"?"));
}

TEST(ConfigFaults, OfTypeSayWhatWasExpectedAndWhatCame) {
  const auto fault = [](const std::string& json) {
    const auto faults = faults_of(json);
    return faults.size() == 1 ? faults[0] : "not one fault";
  };
  EXPECT_EQ(fault(R"({"model": {"lrpe": 1}})"),
            "x.json:1: model.lrpe: expected true or false, got 1");
  EXPECT_EQ(fault(R"({"model": {"layers": 1.5}})"),
            "x.json:1: model.layers: expected an integer from 1 to 2147483647, got 1.5");
  EXPECT_EQ(fault(R"({"model": {"dropout": "0.1"}})"),
            "x.json:1: model.dropout: expected a number of at least 0 and below 1, got \"0.1\"");
  EXPECT_EQ(fault(R"({"model": {"norm": null}})"),
            "x.json:1: model.norm: expected one of \"srms\", \"rms\", \"layer\", got null");
  EXPECT_EQ(fault(R"({"tokenizer": {"path": []}})"),
            "x.json:1: tokenizer.path: expected a path, or \"\" for none, got a list");
  EXPECT_EQ(fault(R"({"data": {"train": ["a", 2]}})"),
            "x.json:1: data.train: expected a path, a glob or a list of them, got 2");
  EXPECT_EQ(fault(R"({"optimizer": {"betas": [0.9]}})"),
            "x.json:1: optimizer.betas: expected a list of two numbers, each of at least 0 and "
            "below 1, got a list of 1");
  EXPECT_EQ(fault(R"({"model": 3})"), "x.json:1: model: expected an object of settings, got 3");
  EXPECT_EQ(fault(R"({"distributed": {"timeout_s": 0}})"),
            "x.json:1: distributed.timeout_s: expected a number above 0 and at most 1e+09 "
            "(seconds), got 0");
}

TEST(ConfigRanges, HoldAtTheirEnds) {
  EXPECT_THAT(faults_of(R"({"model": {"dropout": 0}, "checkpoint": {"keep_last": 2},
                            "optimizer": {"betas": [0, 0.999]}})"),
              IsEmpty());
  EXPECT_EQ(faults_of(R"({"model": {"dropout": 1.0}})").size(), 1U);
  EXPECT_EQ(faults_of(R"({"model": {"dropout": -0.1}})").size(), 1U);
  EXPECT_EQ(faults_of(R"({"checkpoint": {"keep_last": 1}})").size(), 1U);
  EXPECT_EQ(faults_of(R"({"optimizer": {"betas": [0.9, 1]}})").size(), 1U);
  EXPECT_EQ(faults_of(R"({"optimizer": {"eps": 0}})").size(), 1U);
}

TEST(ConfigIntegers, MayBeWrittenAsWholeFloatsButMustFit) {
  EXPECT_EQ(config_of(R"({"train": {"steps": 1e5}})").train.steps, 100000);
  EXPECT_EQ(config_of(R"({"train": {"seed": 9223372036854775807}})").train.seed,
            9223372036854775807);
  for (const char* seed : {"9223372036854775808", "1e300", "-1", "0.5"}) {
    EXPECT_EQ(faults_of(std::string(R"({"train": {"seed": )") + seed + "}}").size(), 1U) << seed;
  }
}

TEST(ConfigChoices, NameTheNearestOne) {
  EXPECT_THAT(faults_of(R"({"train": {"precision": "fp23"}})"),
              ElementsAre(HasSubstr("did you mean \"fp32\"?")));
  EXPECT_THAT(faults_of(R"({"model": {"early": {"attention": "daig"}}})"),
              ElementsAre(AllOf(HasSubstr("model.early.attention: expected one of \""),
                                HasSubstr("did you mean \"diag\"?"))));
}

TEST(ConfigAttention, TakesTheSettingsOfTheOneThatIsNamed) {
  const ModelConfig model = config_of(R"({"model": {"variant": "custom",
                              "early": {"attention": "norm", "kernel": "elu"},
                              "late": {"attention": "diag", "score": "relu", "block": 16}}})")
                                .model;
  EXPECT_EQ(model.early, AttentionConfig(NormAttentionConfig{.kernel = FeatureMap::elu}));
  EXPECT_EQ(model.late,
            AttentionConfig(DiagAttentionConfig{.score = ScoreKind::relu, .block = 16}));
}

TEST(ConfigAttention, RefusesTheSettingsOfAnother) {
  EXPECT_THAT(faults_of(R"({"model": {"variant": "custom", "late": {"block": 16}}})"),
              ElementsAre(HasSubstr("model.late.block: unknown key for the attention \"norm\"")));
}

TEST(ConfigAttention, KeepsWhatALowerLayerNamedUnlessTheKindChanges) {
  const std::string json =
      R"({"model": {"variant": "custom", "early": {"attention": "diag", "block": 16}}})";
  EXPECT_EQ(config_of(json, {"model.early.score=relu"}).model.early,
            AttentionConfig(DiagAttentionConfig{.score = ScoreKind::relu, .block = 16}));
  const LoadedConfig changed = parse_config(json, "x.json", {"model.early.attention=norm"});
  EXPECT_EQ(changed.config.model.early, AttentionConfig(NormAttentionConfig{}));
  EXPECT_FALSE(changed.origins.contains("model.early.block"));
}

TEST(ConfigSet, IsReadByTheTypeOfTheField) {
  const Config config =
      config_of("{}", {"model.dropout=.25", "model.lrpe=true", "train.steps=2e3", "run_name=12",
                       "optimizer.betas=[0.8, 0.95]", "train.precision=bf16",
                       "tokenizer.path=", "train={\"seed\": 5, \"max_epochs\": 2}"});
  EXPECT_EQ(config.model.dropout, 0.25);
  EXPECT_EQ(config.train.steps, 2000);
  EXPECT_EQ(config.run_name, "12");
  EXPECT_EQ(config.optimizer.rule.get<AdamWConfig>().betas, (std::array{0.8, 0.95}));
  EXPECT_EQ(config.train.precision, Precision::bf16);
  EXPECT_EQ(config.tokenizer.path, "");
  EXPECT_EQ(config.train.seed, 5);
  EXPECT_EQ(config.train.max_epochs, 2);
}

TEST(ConfigSet, TakesPathsAsOneStringOrAsAList) {
  const std::string here = std::filesystem::current_path().string();
  EXPECT_THAT(config_of("{}", {"data.train=a=b.txt"}).data.train, ElementsAre(here + "/a=b.txt"));
  EXPECT_THAT(config_of("{}", {"data.train=[\"a\", \"/b*\"]"}).data.train,
              ElementsAre(here + "/a", "/b*"));
  EXPECT_THAT(config_of("{}", {"data.train=[ab].txt"}).data.train, ElementsAre(here + "/[ab].txt"));
  EXPECT_THAT(config_of(R"({"data": {"train": "a"}})", {"data.train="}).data.train, IsEmpty());
}

TEST(ConfigSet, TakesAnAttentionAsAnObject) {
  const Config config =
      config_of("{}", {"model.variant=custom", R"(model.early={"attention":"diag","block":32})"});
  EXPECT_EQ(config.model.early, AttentionConfig(DiagAttentionConfig{.block = 32}));
}

TEST(ConfigSet, IsFaultyLikeAFile) {
  const auto fault = [](const std::string& set) {
    const auto faults = faults_of("{}", {set});
    return faults.size() == 1 ? faults[0] : "not one fault";
  };
  EXPECT_EQ(fault("model.dim=abc"),
            "--set: model.dim: expected an integer from 1 to 2147483647, got \"abc\"");
  for (const char* value : {"nan", "inf", "-inf", "1e999"}) {
    EXPECT_THAT(fault(std::string("optimizer.lr=") + value),
                HasSubstr("--set: optimizer.lr: expected a finite number"));
  }
  EXPECT_THAT(fault("model.dimm=3"), HasSubstr("did you mean \"model.dim\""));
  EXPECT_THAT(fault("model.dim"), HasSubstr("expected KEY=VALUE"));
  EXPECT_THAT(fault("=3"), HasSubstr("expected KEY=VALUE"));
  EXPECT_THAT(fault("model=3"), HasSubstr("model: expected an object of settings, got \"3\""));
  EXPECT_THAT(fault("model={\"dim\":"), HasSubstr("not valid JSON"));
  EXPECT_THAT(fault("train={\"seed\": 1, \"seed\": 2}"), HasSubstr("seed: given twice"));
  EXPECT_THAT(fault("model.dim.x=3"), HasSubstr("model.dim: expected an integer"));
  EXPECT_THAT(fault("..=3"), HasSubstr("unknown key"));
  EXPECT_THAT(fault("include=a.json"), HasSubstr("include: cannot be set"));
  EXPECT_THAT(fault("data.train=\xff.txt"), HasSubstr("in UTF-8"));
}

}  // namespace
}  // namespace transnormer
