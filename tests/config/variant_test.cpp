#include "config/variant.h"

#include "config/support.h"

namespace transnormer {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

TEST(ModelVariant, T1IsReluInBlocksThenElu) {
  const ModelConfig m = config_of(R"({"model": {"variant": "t1"}})").model;
  EXPECT_EQ(m.early, AttentionConfig(DiagAttentionConfig{
                         .score = ScoreKind::relu, .block = 64, .output_norm = NormKind::srms}));
  EXPECT_EQ(m.late, AttentionConfig(NormAttentionConfig{.kernel = FeatureMap::elu,
                                                        .output_norm = NormKind::srms}));
  EXPECT_EQ(m.norm, NormKind::srms);
  EXPECT_EQ(m.ffn, FfnKind::glu);
  EXPECT_EQ(m.ffn_activation, Activation::silu);
  EXPECT_TRUE(m.lrpe);
}

TEST(ModelVariant, T2IsSoftmaxInBlocksThenElu1) {
  const ModelConfig m = config_of(R"({"model": {"variant": "t2"}})").model;
  EXPECT_EQ(m.early, AttentionConfig(DiagAttentionConfig{
                         .score = ScoreKind::softmax, .block = 64, .output_norm = NormKind::none}));
  EXPECT_EQ(m.late, AttentionConfig(NormAttentionConfig{.kernel = FeatureMap::elu1,
                                                        .output_norm = NormKind::srms}));
  EXPECT_EQ(m.resolved_ffn_dim(), 1365);
  EXPECT_EQ(m.resolved_early_layers(), 3);
}

TEST(ModelVariant, TransformerIsTheSoftmaxBaseline) {
  const ModelConfig m = config_of(R"({"model": {"variant": "transformer"}})").model;
  EXPECT_EQ(m.early, AttentionConfig("softmax"));
  EXPECT_EQ(m.late, AttentionConfig("softmax"));
  EXPECT_EQ(m.norm, NormKind::layer);
  EXPECT_EQ(m.ffn, FfnKind::mlp);
  EXPECT_EQ(m.ffn_activation, Activation::relu);
  EXPECT_EQ(m.resolved_ffn_dim(), 2048);
  EXPECT_FALSE(m.lrpe);
}

TEST(ModelVariant, AContradictingPartPointsToCustom) {
  EXPECT_THAT(
      faults_of("{\"model\": {\"variant\": \"t1\",\n\"norm\": \"layer\"}}"),
      ElementsAre("x.json:2: model.norm: \"layer\" contradicts the variant \"t1\", which has "
                  "\"srms\"; set model.variant to \"custom\" to choose the parts freely (it starts "
                  "from those of t2)"));
  for (const char* part :
       {R"("early": {"score": "relu"})", R"("early": {"block": 32})",
        R"("early": {"attention": "softmax"})", R"("late": {"kernel": "elu"})", R"("norm": "rms")",
        R"("ffn": "mlp", "ffn_dim": 1365)", R"("ffn_dim": 1000)", R"("ffn_activation": "relu")",
        R"("lrpe": false)", R"("early_layers": 2)"}) {
    EXPECT_THAT(faults_of(std::string(R"({"model": {"variant": "t2", )") + part + "}}"),
                ElementsAre(HasSubstr("contradicts the variant \"t2\"")))
        << part;
    EXPECT_THAT(faults_of(std::string(R"({"model": {"variant": "custom", )") + part + "}}"),
                IsEmpty())
        << part;
  }
}

TEST(ModelVariant, AgreeingPartsMayBeNamed) {
  EXPECT_THAT(faults_of(R"({"model": {"variant": "t1", "early": {"attention": "diag"},
                            "late": {"kernel": "elu"}, "norm": "srms", "ffn_dim": 1365,
                            "early_layers": 3}})"),
              IsEmpty());
}

TEST(ModelVariant, CustomStartsFromT2) {
  const ModelConfig m = config_of(R"({"model": {"variant": "custom", "norm": "layer"}})").model;
  EXPECT_EQ(m.early, AttentionConfig(DiagAttentionConfig{}));
  EXPECT_EQ(m.late, AttentionConfig(NormAttentionConfig{}));
  EXPECT_EQ(m.norm, NormKind::layer);
  EXPECT_TRUE(m.lrpe);
}

TEST(ModelVariant, FromASetResetsThePartsThatTheFileNames) {
  const std::string resolved =
      config_to_json(config_of(R"({"model": {"variant": "transformer", "layers": 3}})"));
  const LoadedConfig loaded = parse_config(resolved, "x.json", {"model.variant=t1"});
  EXPECT_EQ(config_of(R"({"model": {"variant": "t1", "layers": 3}})"), loaded.config);
  EXPECT_EQ(loaded.origins.at("model.norm"), "model.variant");
  EXPECT_EQ(loaded.origins.at("model.variant"), "--set");
  EXPECT_EQ(loaded.origins.at("model.layers"), "x.json");
  EXPECT_EQ(config_of(resolved, {R"(model={"variant": "t1"})"}), loaded.config);
}

TEST(ModelVariant, FromASetIsStillContradictedByAnotherSet) {
  const std::string resolved = config_to_json(config_of("{}"));
  EXPECT_THAT(faults_of(resolved, {"model.late.kernel=elu1", "model.variant=t1"}),
              ElementsAre(HasSubstr("--set: model.late.kernel: \"elu1\" contradicts")));
}

TEST(ModelVariant, CustomFromASetWarnsThatThePartsChange) {
  const LoadedConfig loaded = parse_config(R"({"model": {"variant": "t1"}})", "x.json",
                                           {"model.variant=custom", "model.early.block=32"});
  EXPECT_EQ(loaded.config.model.early, AttentionConfig(DiagAttentionConfig{.block = 32}));
  EXPECT_THAT(loaded.warnings, ElementsAre(HasSubstr("starts from the parts of t2")));
  EXPECT_THAT(parse_config("{}", "x.json", {"model.variant=custom"}).warnings, IsEmpty());
}

TEST(ModelVariant, OfAFileOverridesThatOfAnInclude) {
  const TemporaryDirectory dir;
  dir.write("t1.json", R"({"model": {"variant": "t1"}})");
  const auto file =
      dir.write("x.json", R"({"include": "t1.json", "model": {"variant": "transformer"}})");
  EXPECT_EQ(load_config(file).config.model.norm, NormKind::layer);
}

}  // namespace
}  // namespace transnormer
