#include "tokenizer/utf8.h"

#include <gtest/gtest.h>

#include <string>

namespace transnormer {
namespace {

using Kind = Utf8Step::Kind;

// All code points by the definition of the encoding.
std::string encoded(unsigned point) {
  const auto byte = [](unsigned value) { return static_cast<char>(value); };
  if (point < 0x80) {
    return {byte(point)};
  }
  if (point < 0x800) {
    return {byte(0xC0 | point >> 6), byte(0x80 | (point & 63))};
  }
  if (point < 0x10000) {
    return {byte(0xE0 | point >> 12), byte(0x80 | (point >> 6 & 63)), byte(0x80 | (point & 63))};
  }
  return {byte(0xF0 | point >> 18), byte(0x80 | (point >> 12 & 63)), byte(0x80 | (point >> 6 & 63)),
          byte(0x80 | (point & 63))};
}

TEST(Utf8, AcceptsEveryCodePointButSurrogates) {
  for (unsigned point = 0; point < 0x110000; point += point < 0x11000 ? 1 : 37) {
    const std::string bytes = encoded(point) + "x";
    const Utf8Step step = utf8_step(bytes);
    if (point >= 0xD800 && point < 0xE000) {
      ASSERT_EQ(step.kind, Kind::invalid) << point;
    } else {
      ASSERT_EQ(step.kind, Kind::character) << point;
      ASSERT_EQ(step.size, bytes.size() - 1) << point;
    }
  }
}

TEST(Utf8, WaitsForTheRestOfACutCharacter) {
  for (const unsigned point : {0x7FFU, 0xFFFDU, 0x1F642U}) {
    const std::string bytes = encoded(point);
    for (std::size_t size = 1; size < bytes.size(); ++size) {
      EXPECT_EQ(utf8_step(bytes.substr(0, size)).kind, Kind::incomplete) << point;
    }
  }
}

TEST(Utf8, RefusesOverlongFormsStrayBytesAndPointsPastTheEnd) {
  for (const char* bytes :
       {"\x80", "\xBF", "\xC0\x80", "\xC1\xBF", "\xE0\x9F\xBF", "\xF0\x8F\xBF\xBF",
        "\xF4\x90\x80\x80", "\xF5\x80\x80\x80", "\xFF", "\xC3(", "\xE2\x82(", "\xED\xA0\x80"}) {
    EXPECT_EQ(utf8_step(bytes).kind, Kind::invalid) << testing::PrintToString(bytes);
    EXPECT_EQ(utf8_step(bytes).size, 1U);
  }
}

}  // namespace
}  // namespace transnormer
