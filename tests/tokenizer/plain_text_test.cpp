#include "tokenizer/plain_text.h"

#include <gtest/gtest.h>

namespace transnormer {
namespace {

TEST(PlainText, StartsBehindItsByteOrderMark) {
  EXPECT_EQ(without_byte_order_mark("\xEF\xBB\xBFthe"), "the");
  EXPECT_EQ(without_byte_order_mark("\xEF\xBB\xBF\xEF\xBB\xBF"), "\xEF\xBB\xBF");
  EXPECT_EQ(without_byte_order_mark("\xEF\xBBthe"), "\xEF\xBBthe");
  EXPECT_EQ(without_byte_order_mark(""), "");
}

TEST(PlainText, LosesCarriageReturnsAtLineEndsOnly) {
  std::string text = "a\rb\r\n\r\r\n\nend\r";
  EXPECT_EQ(drop_carriage_returns(text), 3);
  EXPECT_EQ(text, "a\rb\n\r\n\nend");
  text = "a\rb";
  EXPECT_EQ(drop_carriage_returns(text), 0);
  EXPECT_EQ(text, "a\rb");
}

TEST(PlainText, KnowsWhatIsNoUtf8WhereverItStands) {
  const std::string good = "plain caf\xC3\xA9 \xE6\x97\xA5 \xF0\x9F\x99\x82 ";
  for (std::size_t place = 0; place < 20; ++place) {
    const std::string before = std::string(place, 'x') + good;
    EXPECT_EQ(find_invalid_utf8(before).bytes, 0);
    for (const std::string& bad : {std::string("\xE9"), std::string("\xC0\xAF"),
                                   std::string("\xED\xA0\x80"), std::string("\xE6\x97")}) {
      const InvalidUtf8 found = find_invalid_utf8(before + bad + good);
      EXPECT_EQ(found.bytes, static_cast<std::int64_t>(bad.size()));
      EXPECT_EQ(found.first, before.size());
      EXPECT_EQ(find_invalid_utf8(before + bad).bytes, static_cast<std::int64_t>(bad.size()));
    }
  }
}

TEST(CountByte, CountsInTextsOfAnyLength) {
  std::string text;
  for (std::int64_t lines = 0; lines < 700; ++lines) {
    EXPECT_EQ(count_byte(text, '\n'), lines);
    EXPECT_EQ(count_byte(text, '\r'), 0);
    text += std::string(static_cast<std::size_t>(lines % 37), 'x') + '\n';
  }
  EXPECT_EQ(count_byte(std::string(100'000, '\r'), '\r'), 100'000);
}

}  // namespace
}  // namespace transnormer
