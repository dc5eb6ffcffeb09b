#include "util/units.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>

namespace transnormer {
namespace {

TEST(FormatCount, SetsCommasEveryThreeDigits) {
  EXPECT_EQ(format_count(0), "0");
  EXPECT_EQ(format_count(999), "999");
  EXPECT_EQ(format_count(1000), "1,000");
  EXPECT_EQ(format_count(155988540), "155,988,540");
  EXPECT_EQ(format_count(-1234), "-1,234");
  EXPECT_EQ(format_count(-123), "-123");
  EXPECT_EQ(format_count(std::numeric_limits<std::int64_t>::min()), "-9,223,372,036,854,775,808");
}

TEST(FormatBytes, ChoosesABinaryUnit) {
  EXPECT_EQ(format_bytes(0), "0 B");
  EXPECT_EQ(format_bytes(1023), "1023 B");
  EXPECT_EQ(format_bytes(1536), "1.50 KiB");
  EXPECT_EQ(format_bytes(4831838208), "4.50 GiB");
  EXPECT_EQ(format_bytes(0x1p80), "1048576.00 EiB");
}

TEST(FormatShort, ChoosesADecimalUnit) {
  EXPECT_EQ(format_short(0), "0");
  EXPECT_EQ(format_short(12), "12");
  EXPECT_EQ(format_short(1.25), "1.2");
  EXPECT_EQ(format_short(12345.6), "12.3k");
  EXPECT_EQ(format_short(3.2e9), "3.2G");
  EXPECT_EQ(format_short(-2500), "-2.5k");
}

TEST(FormatDuration, ShowsTheTwoLargestUnits) {
  EXPECT_EQ(format_duration(4.2), "4.2s");
  EXPECT_EQ(format_duration(65), "1m05s");
  EXPECT_EQ(format_duration(3723), "1h02m");
  EXPECT_EQ(format_duration(90000), "1d01h");
}

TEST(FormatDuration, RoundsIntoTheNextUnit) {
  EXPECT_EQ(format_duration(59.97), "1m00s");
}

TEST(FormatFixed, WritesWhatIsNotFinite) {
  EXPECT_EQ(format_fixed(1.005, 1), "1.0");
  EXPECT_EQ(format_fixed(std::numeric_limits<double>::infinity(), 2), "inf");
  EXPECT_EQ(format_fixed(std::numeric_limits<double>::quiet_NaN(), 2), "nan");
}

TEST(ParseInteger, TakesDecimalNumbersThatFit) {
  EXPECT_EQ(parse_integer("0"), 0);
  EXPECT_EQ(parse_integer("-12"), -12);
  EXPECT_EQ(parse_integer("010"), 10);
  EXPECT_EQ(parse_integer("9223372036854775807"), 9223372036854775807);
  for (const char* text : {"", " 1", "1 ", "+5", "0x10", "1e3", "1.0", "1'000", "1_000", "--1", "-",
                           "9223372036854775808", "18446744073709551616"}) {
    EXPECT_EQ(parse_integer(text), std::nullopt) << text;
  }
}

TEST(ParseReal, TakesFiniteDecimalNumbers) {
  EXPECT_EQ(parse_real("0.5"), 0.5);
  EXPECT_EQ(parse_real(".5"), 0.5);
  EXPECT_EQ(parse_real("-1e-3"), -1e-3);
  EXPECT_EQ(parse_real("7"), 7);
  for (const char* text :
       {"", " 1", "1 ", "+0.5", "nan", "inf", "-inf", "infinity", "1e999", "0x1p3", "0,5", "1e"}) {
    EXPECT_EQ(parse_real(text), std::nullopt) << text;
  }
}

}  // namespace
}  // namespace transnormer
