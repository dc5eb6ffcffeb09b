#include "model/model_size.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tokenizer/tokenizer.h"
#include "util/error.h"

namespace transnormer {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::ThrowsMessage;

TEST(ModelSizeTest, TakesTheVocabularyFromConfigTokenizerOrTokenizerConfig) {
  const auto tokenizer = parse_tokenizer("a 1\nb 1\n", "dictionary");
  Config config;
  config.data.tokens_per_sample = 24;
  EXPECT_EQ(model_size(config, tokenizer.get()).vocab_size, 6);
  EXPECT_EQ(model_size(config, tokenizer.get()).max_positions, 24);
  config.tokenizer.vocab_size = 50;
  EXPECT_EQ(model_size(config, nullptr).vocab_size, 56);  // filled up to a multiple of 8
  EXPECT_EQ(model_size(config, tokenizer.get()).vocab_size, 6);
  config.model.vocab_size = 8;
  EXPECT_EQ(model_size(config, tokenizer.get()).vocab_size, 8);
  EXPECT_EQ(model_size(config, nullptr).vocab_size, 8);
}

TEST(ModelSizeTest, RefusesTooFewRowsAndAnUnknownNumber) {
  const auto tokenizer = parse_tokenizer("a 1\nb 1\n", "dictionary");
  Config config;
  EXPECT_THAT([&] { (void)model_size(config, nullptr); },
              ThrowsMessage<UserError>(HasSubstr("set model.vocab_size")));
  config.model.vocab_size = 5;
  EXPECT_THAT([&] { (void)model_size(config, tokenizer.get()); },
              ThrowsMessage<UserError>(AllOf(HasSubstr("model.vocab_size"), HasSubstr("5 rows"),
                                             HasSubstr("6 tokens"))));
}

}  // namespace
}  // namespace transnormer
