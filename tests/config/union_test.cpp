// Unions of settings: the values, and a family's part in files, schema and messages. The attention
// here is added before main(), as those of src/model are.
#include "config/union.h"

#include <nlohmann/json.hpp>

#include "config/fields.h"
#include "config/listing.h"
#include "config/support.h"

namespace transnormer {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

struct AverageConfig {
  static constexpr const char* kName = "average";
  static constexpr const char* kHelp = "The mean of the last tokens";
  std::int64_t window = 4;
  void visit(FieldVisitor& v) {
    v.integer({"window", "How many", OnResume::refuse, "tokens"}, window, {1, 100});
  }
  bool operator==(const AverageConfig&) const = default;
};
const bool kAverageAdded = add_alternative<AverageConfig>(attentions());

struct SignConfig {
  static constexpr const char* kName = "sign";
  static constexpr const char* kHelp = "The sign of the gradient";
  double momentum = 0.5;
  void visit(FieldVisitor& v) {
    v.number({"momentum", "Of the gradients", OnResume::warn}, momentum, kProbability);
  }
  bool operator==(const SignConfig&) const = default;
};
const bool kSignAdded = add_alternative<SignConfig>(optimizers());

TEST(UnionValue, TakesTheDefaultsOfItsNameUntilTheyAreChanged) {
  ASSERT_TRUE(kAverageAdded);
  AttentionConfig value = "average";
  EXPECT_EQ(value, AttentionConfig(AverageConfig{}));
  const AttentionConfig copy = value;
  value.get<AverageConfig>().window = 9;
  EXPECT_EQ(value, AttentionConfig(AverageConfig{9}));
  EXPECT_EQ(copy, AttentionConfig("average"));
  value.select("average");
  EXPECT_EQ(value.get<AverageConfig>().window, 9);
  value.select("norm");
  EXPECT_EQ(value, AttentionConfig("norm"));
}

TEST(UnionValue, GivesNoSettingsOfAnotherAlternativeOrOfOneThatIsNotThere) {
  AttentionConfig value = "average";
  EXPECT_THROW(static_cast<void>(value.get<NormAttentionConfig>()), std::logic_error);
  AttentionConfig missing = "missing";
  EXPECT_EQ(missing, AttentionConfig("missing"));
  EXPECT_THROW(static_cast<void>(missing.get<AverageConfig>()), std::logic_error);
}

TEST(Alternatives, HaveEachNameOnce) {
  EXPECT_THROW(add_alternative<AverageConfig>(attentions()), std::logic_error);
  const std::vector<const char*> names = attentions().names();
  EXPECT_THAT(std::vector<std::string>(names.begin(), names.end()),
              testing::IsSupersetOf({"average", "diag", "norm", "softmax"}));
  EXPECT_TRUE(std::is_sorted(names.begin(), names.end(),
                             [](const char* a, const char* b) { return std::string(a) < b; }));
}

TEST(AnAddedAlternative, IsReadWrittenAndCompared) {
  const Config config =
      config_of(R"({"model": {"variant": "custom", "late": {"attention": "average"}},
                    "optimizer": {"name": "sign", "lr": 1e-3}})",
                {"model.late.window=7", "optimizer.momentum=0.25"});
  EXPECT_EQ(config.model.late, AttentionConfig(AverageConfig{7}));
  EXPECT_EQ(config.optimizer.rule, OptimizerRule(SignConfig{0.25}));
  EXPECT_EQ(config_of(config_to_json(config)), config);

  Config other = config;
  other.model.late.get<AverageConfig>().window = 8;
  other.optimizer.rule.get<SignConfig>().momentum = 0;
  const std::vector<ConfigChange> changes = config_changes(config, other);
  ASSERT_EQ(changes.size(), 2U);
  EXPECT_EQ(changes[0].key, "model.late.window");
  EXPECT_EQ(changes[0].on_resume, OnResume::refuse);
  EXPECT_EQ(changes[1].key, "optimizer.momentum");
  EXPECT_EQ(changes[1].on_resume, OnResume::warn);
}

TEST(AnAddedAlternative, OfTheOptimizerIsRefusedOnResume) {
  const std::vector<ConfigChange> changes =
      config_changes(config_of("{}"), config_of(R"({"optimizer": {"name": "sign"}})"));
  ASSERT_EQ(changes.size(), 2U);  // the new one's setting has no value before
  EXPECT_EQ(changes[0].key, "optimizer.name");
  EXPECT_EQ(changes[0].on_resume, OnResume::refuse);
}

TEST(AnAddedAlternative, IsKnownToMessagesAboutFaults) {
  EXPECT_THAT(
      faults_of(R"({"model": {"variant": "custom", "late": {"attention": "averag"}}})"),
      ElementsAre(testing::AllOf(HasSubstr("model.late.attention: expected one of \"average\", "),
                                 HasSubstr("got \"averag\"; did you mean \"average\"?"))));
  EXPECT_THAT(faults_of(R"({"optimizer": {"name": "sign", "betas": [0, 0], "mometum": 0}})"),
              ElementsAre(HasSubstr("optimizer.betas: unknown key for the optimizer \"sign\"; "
                                    "expected one of \"name\", \"lr\""),
                          HasSubstr("optimizer.mometum: unknown key for the optimizer \"sign\"; "
                                    "did you mean \"optimizer.momentum\"")));
}

// What was set of AdamW in a lower layer says nothing about the settings of another optimizer.
TEST(AnAddedAlternative, StartsFromItsOwnDefaults) {
  const LoadedConfig loaded = parse_config(R"({"optimizer": {"lr": 2e-3, "eps": 1e-3}})", "x.json",
                                           {"optimizer.name=sign"});
  EXPECT_EQ(loaded.config.optimizer.rule, OptimizerRule(SignConfig{}));
  EXPECT_EQ(loaded.origins.at("optimizer.lr"), "x.json");
  EXPECT_EQ(loaded.origins.at("optimizer.momentum"), "default");
  EXPECT_FALSE(loaded.origins.contains("optimizer.eps"));
}

TEST(AnAddedAlternative, IsDescribedInTheReference) {
  const std::string text = config_reference();
  EXPECT_THAT(text, HasSubstr("| `average` | | | | "));
  EXPECT_THAT(text, HasSubstr("| | `window` | `4` |"));
  EXPECT_THAT(text, HasSubstr("### Settings of each optimizer\n"));
  EXPECT_THAT(text, HasSubstr("| `adamw` | | | | "));
  EXPECT_THAT(text, HasSubstr("| | `momentum` | `0.5` |"));
}

// Of the settings that stand beside keys of all optimizers, each has its own only.
TEST(AnAddedAlternative, HasASchemaOfItsOwn) {
  using Json = nlohmann::json;
  const Json optimizer = Json::parse(config_schema())["properties"]["optimizer"];
  EXPECT_EQ(optimizer["properties"]["name"]["enum"], (Json{"adamw", "lion", "muon", "sign"}));
  ASSERT_EQ(optimizer["allOf"].size(), 4U);
  const Json& adamw = optimizer["allOf"][0];
  EXPECT_EQ(adamw["if"]["properties"]["name"]["const"], "adamw");
  EXPECT_FALSE(adamw["if"].contains("required"));  // holds without a name, too
  EXPECT_EQ(adamw["then"]["properties"]["momentum"], false);
  const Json& sign = optimizer["allOf"][3];
  EXPECT_EQ(sign["if"]["required"], Json{"name"});
  EXPECT_EQ(sign["then"]["properties"]["momentum"]["exclusiveMaximum"], 1);
  EXPECT_EQ(sign["then"]["properties"]["betas"], false);
  EXPECT_EQ(optimizer["additionalProperties"], false);
  EXPECT_EQ(optimizer["properties"]["momentum"], true);
}

}  // namespace
}  // namespace transnormer
