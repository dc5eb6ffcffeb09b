#include "analyze/subject.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "analyze/settings.h"
#include "model/attention/diag.h"
#include "model/attention/norm.h"
#include "model/models.h"
#include "util/error.h"
#include "util/file.h"
#include "util/temporary_directory.h"

namespace transnormer {
namespace {

Config small() {
  Config config;
  config.model = test::small_config(ModelVariant::t2);
  config.model.vocab_size = 41;
  config.data.tokens_per_sample = 10;
  return config;
}

TEST(Subject, WithoutTextsTokensAreRandomButTheSameEachTime) {
  const Subject first = subject_of(small(), {.windows = 3});
  const Subject second = subject_of(small(), {.windows = 3});
  EXPECT_EQ(first.text, "random tokens");
  EXPECT_FALSE(first.trained);
  EXPECT_EQ(first.length, 10);
  ASSERT_EQ(first.windows.size(), 3);
  for (std::size_t i = 0; i < 3; ++i) {
    const Window& window = first.windows[i];
    EXPECT_EQ(window.inputs.sizes(), (at::IntArrayRef{1, 10}));
    EXPECT_TRUE(at::equal(window.inputs.narrow(1, 1, 9), window.targets.narrow(1, 0, 9)));
    EXPECT_TRUE(at::equal(window.inputs, second.windows[i].inputs));
  }
  EXPECT_FALSE(at::equal(first.windows[0].inputs, first.windows[1].inputs));
}

TEST(Subject, WindowsAreWholeOnesEvenlyTakenOverTheSplit) {
  const test::TemporaryDirectory directory;
  std::string text;
  for (int i = 0; i < 60; ++i) {  // 20 words and a line end each
    for (int word = 0; word < 20; ++word) {
      text += "w" + std::to_string((i * 20 + word) % 30) + (word < 19 ? " " : "\n");
    }
  }
  write_file(directory.path() / "text.txt", text);
  Config config = small();
  config.model.vocab_size = 0;
  config.data.train = config.data.valid = {(directory.path() / "text.txt").string()};
  config.data.cache_dir = (directory.path() / "cache").string();
  const Subject subject = subject_of(config, {.windows = 4});
  EXPECT_EQ(subject.text, "split valid");
  ASSERT_EQ(subject.windows.size(), 4);
  EXPECT_FALSE(at::equal(subject.windows[0].inputs, subject.windows[1].inputs));
  EXPECT_EQ(subject_of(config, {.windows = 1000}).windows.size(), 126);  // of 1,260 tokens

  EXPECT_THROW((void)subject_of(config, {.split = Split::test}), UserError);
  config.data.valid = {(directory.path() / "missing.txt").string()};
  config.model.vocab_size = 41;
  EXPECT_EQ(subject_of(config, {}).text, "random tokens");
  EXPECT_THROW((void)subject_of(config, {.split = Split::valid}), UserError);
}

TEST(Subject, LengthsWhoseMatricesDoNotFitAreRefused) {
  Subject subject;
  subject.config = small();
  subject.length = std::int64_t{1} << 24;
  try {
    require_room_for_matrices(subject);
    FAIL() << "not refused";
  } catch (const UserError& error) {
    EXPECT_THAT(
        error.faults(),
        testing::ElementsAre(testing::HasSubstr("data.tokens_per_sample: expected a length")));
  }
  subject.length = 100;
  require_room_for_matrices(subject);
}

TEST(Subject, WeightsAreMadeOfScoresAsTheAttentionSays) {
  const ModelConfig t2 = test::small_config(ModelVariant::t2);
  EXPECT_EQ(weighting_of(t2, 0), Weighting::softmax);
  EXPECT_EQ(weighting_of(t2, 1), Weighting::unnormalised);
  EXPECT_EQ(weighting_of(test::small_config(ModelVariant::t1), 0), Weighting::unnormalised);
  EXPECT_EQ(weighting_of(test::small_config(ModelVariant::transformer), 2), Weighting::softmax);
}

TEST(Settings, AreReadAndChangedByTheirKeys) {
  const AttentionConfig norm = NormAttentionConfig{};
  EXPECT_EQ(choice_of(norm, "output_norm"), "srms");
  EXPECT_EQ(choice_of(norm, "score"), std::nullopt);
  EXPECT_EQ(flag_of(norm, "denominator"), std::nullopt);
  const AttentionConfig without = with_choice(norm, "output_norm", "none");
  EXPECT_EQ(without.get<NormAttentionConfig>().output_norm, NormKind::none);
  EXPECT_EQ(norm.get<NormAttentionConfig>().output_norm, NormKind::srms);
  EXPECT_THROW((void)with_choice(norm, "output_norm", "other"), std::logic_error);
}

}  // namespace
}  // namespace transnormer
