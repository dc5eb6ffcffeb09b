#include "util/foreign_json.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <string>

namespace transnormer {
namespace {

TEST(ForeignJson, IsDiscardedWhereItIsNoneOrNestsTooDeep) {
  const auto nested = [](std::size_t depth) {
    return parse_foreign_json(std::string(depth, '[') + std::string(depth, ']'));
  };
  EXPECT_TRUE(parse_foreign_json("{\"a\": [1]}").is_object());
  EXPECT_TRUE(nested(30).is_array());
  EXPECT_TRUE(nested(40).is_discarded());
  EXPECT_TRUE(parse_foreign_json('"' + std::string(40, '[') + R"(\"]")").is_string());
  for (const char* text : {"", "{", "nul", "{\"a\": NaN}", "1e999", "{} {}", "\"\xff\""}) {
    EXPECT_TRUE(parse_foreign_json(text).is_discarded()) << text;
  }
}

TEST(ForeignJson, HasIntegersOfNoMoreThan63Bits) {
  const auto integer = [](const char* text) { return json_integer(parse_foreign_json(text)); };
  EXPECT_EQ(integer("-5"), -5);
  EXPECT_EQ(integer("9223372036854775807"), INT64_MAX);
  EXPECT_EQ(integer("-9223372036854775808"), INT64_MIN);
  for (const char* text : {"9223372036854775808", "18446744073709551615", "18446744073709551616",
                           "-9223372036854775809", "1.0", "true", "\"1\"", "null"}) {
    EXPECT_EQ(integer(text), std::nullopt) << text;
  }
}

}  // namespace
}  // namespace transnormer
