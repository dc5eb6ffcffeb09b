#include "tokenizer/word_table.h"

#include <gtest/gtest.h>

#include <string>
#include <unordered_map>

namespace transnormer {
namespace {

TEST(WordTable, NumbersWordsInTheOrderInWhichTheyCome) {
  WordTable table;
  EXPECT_EQ(table.insert("b"), 0);
  EXPECT_EQ(table.insert("a"), 1);
  EXPECT_EQ(table.insert("b"), 0);
  EXPECT_EQ(table.size(), 2);
  EXPECT_EQ(table.word(0), "b");
  EXPECT_EQ(table.word(1), "a");
  EXPECT_EQ(table.find("c"), -1);
}

TEST(WordTable, AgreesWithTheStandardMapWhileItGrows) {
  WordTable table(2);
  std::unordered_map<std::string, std::int32_t> reference;
  // Lengths from 0 to 40 bytes, many that share all but one byte, every byte value.
  for (int i = 0; i < 20000; ++i) {
    std::string word(static_cast<std::size_t>(i % 41), static_cast<char>(i % 7));
    for (std::size_t place = 0; place < word.size() && place < 2; ++place) {
      word[(word.size() / 2 + place) % word.size()] = static_cast<char>((i / 41) >> (8 * place));
    }
    const auto number =
        reference.try_emplace(word, static_cast<std::int32_t>(reference.size())).first->second;
    ASSERT_EQ(table.insert(word), number);
  }
  ASSERT_EQ(table.size(), static_cast<std::int32_t>(reference.size()));
  for (const auto& [word, number] : reference) {
    EXPECT_EQ(table.find(word), number);
    EXPECT_EQ(table.word(number), word);
    EXPECT_EQ(table.find(word + "!") >= 0, reference.contains(word + "!"));
  }
}

}  // namespace
}  // namespace transnormer
