#include "config/listing.h"

#include "config/aliases.h"
#include "config/support.h"

namespace transnormer {
namespace {

using testing::HasSubstr;

TEST(NearestName, ForgivesTyposCaseAndMissingParts) {
  const std::vector<std::string> names{"dim", "heads", "dropout", "global_batch_size"};
  EXPECT_EQ(nearest("heds", names), "heads");
  EXPECT_EQ(nearest("dropuot", names), "dropout");
  EXPECT_EQ(nearest("DIM", names), "dim");
  EXPECT_EQ(nearest("batch_size", names), "global_batch_size");
  EXPECT_EQ(nearest("optimizer", names), std::nullopt);
  EXPECT_EQ(nearest("", names), std::nullopt);
}

TEST(UnknownKey, IsLookedForInOtherSectionsToo) {
  EXPECT_THAT(describe_unknown_key("", "lr", nullptr), HasSubstr("did you mean \"optimizer.lr\""));
  EXPECT_THAT(describe_unknown_key("model", "tokens_per_sample", nullptr),
              HasSubstr("did you mean \"data.tokens_per_sample\" (an integer from 1"));
  EXPECT_THAT(describe_unknown_key("model", "block", nullptr),
              HasSubstr("did you mean \"model.early.block\""));
}

TEST(KeysNamed, AreFoundByAllOfTheKeyOrItsLastPart) {
  using testing::ElementsAre;
  EXPECT_THAT(keys_named("lr"), ElementsAre("optimizer.lr"));
  EXPECT_THAT(keys_named("optimizer.lr"), ElementsAre("optimizer.lr"));
  EXPECT_THAT(keys_named("every"),
              ElementsAre("validation.every", "checkpoint.every", "log.every"));
  EXPECT_THAT(keys_named("micro-batch-size"), ElementsAre("train.micro_batch_size"));
  EXPECT_THAT(keys_named("distributed"), testing::IsEmpty());
  EXPECT_THAT(keys_named(""), testing::IsEmpty());
}

TEST(KeysNamed, AreFoundByWhatOtherTrainersCallThem) {
  using testing::ElementsAre;
  EXPECT_THAT(keys_named("learning-rate"), ElementsAre("optimizer.lr"));
  EXPECT_THAT(keys_named("n_embd"), ElementsAre("model.dim"));
  EXPECT_THAT(
      keys_named("batch-size"),
      ElementsAre("train.global_batch_size", "train.micro_batch_size", "validation.batch_size"));
}

TEST(Aliases, StandForKeysThatThereAreAndForNoneOfTheirNames) {
  const std::vector<FieldRow> rows = list_all_fields();
  for (const std::string& word : all_aliases()) {
    for (const std::string& key : keys_called(word)) {
      EXPECT_NE(find_row(rows, key), nullptr) << word << " stands for " << key;
    }
    const auto named = std::find_if(rows.begin(), rows.end(), [&](const FieldRow& row) {
      return row.key.ends_with("." + word);
    });
    const std::vector<std::string> keys = keys_called(word);
    if (named != rows.end()) {
      EXPECT_THAT(keys, testing::Contains(named->key)) << word << " is a key's own name";
    }
  }
}

TEST(KeysNearlyNamed, TakeFewWrongLetters) {
  using testing::ElementsAre;
  EXPECT_THAT(keys_nearly_named("warmup-step"), ElementsAre("schedule.warmup_steps"));
  EXPECT_THAT(keys_nearly_named("droput"), ElementsAre("model.dropout"));
  EXPECT_THAT(keys_nearly_named("output_dir"), testing::IsEmpty());
  EXPECT_THAT(keys_nearly_named("x"), testing::IsEmpty());
}

TEST(HintOfChoice, TellsHowOneOfSeveralGpusIsChosen) {
  EXPECT_THAT(hint_of_choice("cuda:0", {"auto", "cpu", "cuda"}),
              HasSubstr("CUDA_VISIBLE_DEVICES=0"));
  EXPECT_EQ(hint_of_choice("cuda:0", {"fp32", "bf16"}), "");
  EXPECT_EQ(hint_of_choice("gpu", {"auto", "cpu", "cuda"}), "; did you mean \"cuda\"?");
}

TEST(UnknownKey, ThatIsNearToNothingListsWhatThereIs) {
  EXPECT_EQ(describe_unknown_key("validation", "zzz", nullptr),
            "validation.zzz: unknown key; expected one of \"every\", \"batch_size\", \"patience\", "
            "\"context_window\", \"max_tokens\", \"prompts\"");
}

TEST(UnknownKey, WrittenWithDotsIsToldToNest) {
  EXPECT_EQ(describe_unknown_key("", "model.dim", nullptr),
            "model.dim: unknown key; expected it nested, as \"model\": {..}");
}

TEST(UnknownKey, OfAnAttentionNamesTheSettingsOfThatOne) {
  const AttentionConfig norm = NormAttentionConfig{};
  EXPECT_EQ(describe_unknown_key("model.early", "kernels", &norm),
            "model.early.kernels: unknown key for the attention \"norm\"; did you mean "
            "\"model.early.kernel\" (one of \"elu1\", \"elu\", \"relu\", \"silu\", \"exp\")?");
  EXPECT_EQ(describe_unknown_key("model.early", "block", &norm),
            "model.early.block: unknown key for the attention \"norm\"; expected one of "
            "\"attention\", \"kernel\", \"output_norm\", \"decay\", \"gate\"");
  const AttentionConfig softmax("softmax");
  EXPECT_EQ(describe_unknown_key("model.late", "kernel", &softmax),
            "model.late.kernel: unknown key for the attention \"softmax\"; expected one of "
            "\"attention\"");
}

TEST(ConfigReference, HasALineForEveryKeyOfEveryAttention) {
  const std::string text = config_reference();
  EXPECT_THAT(text, HasSubstr("### `model`\n"));
  EXPECT_THAT(text, HasSubstr("| `dim` | `512` | an integer from 1 to 2147483647 | Width of the "
                              "model |\n"));
  EXPECT_THAT(text, HasSubstr("| `early.attention` | `\"diag\"` |"));
  EXPECT_THAT(text, HasSubstr("### Settings of each attention\n"));
  EXPECT_THAT(text, HasSubstr("| `diag` | | | | "));
  EXPECT_THAT(text, HasSubstr("| | `block` | `64` |"));
  EXPECT_THAT(text, HasSubstr("| | `kernel` | `\"elu1\"` |"));
  EXPECT_THAT(text, testing::Not(HasSubstr("early.block")));
  for (const FieldRow& row : list_all_fields()) {
    EXPECT_FALSE(row.help.empty()) << row.key;
    EXPECT_FALSE(row.expected.empty()) << row.key;
  }
}

}  // namespace
}  // namespace transnormer
