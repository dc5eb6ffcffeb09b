#include "tokenizer/sentencepiece_spec.h"

#include <gtest/gtest.h>

#include "tokenizer/sentencepiece_models.h"

namespace transnormer {
namespace {

TEST(SentencePieceSpec, ReadsWhatTheModelWasTrainedWith) {
  const SentencePieceSpec usual =
      read_sentencepiece_spec(test::library_model({{"vocab_size", "80"}}));
  EXPECT_TRUE(usual.add_dummy_prefix);
  EXPECT_TRUE(usual.remove_extra_whitespaces);
  EXPECT_EQ(usual.unknown_surface, " \xE2\x81\x87 ");
  const SentencePieceSpec other =
      read_sentencepiece_spec(test::library_model({{"vocab_size", "80"},
                                                   {"add_dummy_prefix", "false"},
                                                   {"remove_extra_whitespaces", "false"},
                                                   {"unk_surface", "[?]"}}));
  EXPECT_FALSE(other.add_dummy_prefix);
  EXPECT_FALSE(other.remove_extra_whitespaces);
  EXPECT_EQ(other.unknown_surface, "[?]");
}

TEST(SentencePieceSpec, KeepsTheDefaultsWhereThereIsNoMessage) {
  EXPECT_TRUE(read_sentencepiece_spec("").add_dummy_prefix);
  EXPECT_TRUE(read_sentencepiece_spec("\xFF\xFF\xFF").remove_extra_whitespaces);
}

}  // namespace
}  // namespace transnormer
