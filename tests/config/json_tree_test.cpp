#include "config/json_tree.h"

#include "config/support.h"

namespace transnormer {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::string syntax_error(const std::string& text) {
  std::vector<Fault> faults;
  try {
    static_cast<void>(parse_json(text, "x.json", faults));
  } catch (const UserError& error) {
    return error.what();
  }
  return "";
}

TEST(JsonTree, RemembersTheLineOfEachKey) {
  std::vector<Fault> faults;
  const JsonNode root = parse_json("{\n\"a\": 1, // x\n\"b\": {\n\n\"c\":\n 2}}", "x", faults);
  EXPECT_EQ(root.find("a")->line, 2);
  EXPECT_EQ(root.find("b")->line, 3);
  EXPECT_EQ(root.find("b")->find("c")->line, 5);
  EXPECT_EQ(root.find("b")->find("c")->integer, 2);
  EXPECT_EQ(root.find("c"), nullptr);
}

TEST(JsonTree, ReportsEveryDuplicateKeyWithItsPathAndKeepsTheLast) {
  std::vector<Fault> faults;
  const JsonNode root = parse_json(
      "{\"a\": {\"b\": 1,\n\"b\": 2},\n\"a\": 3, \"l\": [{\"x\": 1, \"x\": 2}]}", "x", faults);
  ASSERT_EQ(faults.size(), 3U);
  EXPECT_EQ(faults[0].line, 2);
  EXPECT_THAT(faults[0].message, HasSubstr("a.b: given twice, first in line 1"));
  EXPECT_EQ(faults[1].line, 3);
  EXPECT_THAT(faults[1].message, HasSubstr("a: given twice, first in line 1"));
  EXPECT_THAT(faults[2].message, HasSubstr("l[0].x: given twice"));
  EXPECT_EQ(root.find("a")->integer, 3);
}

TEST(JsonTree, ReportsNoMoreDuplicateKeysThanAnyoneReads) {
  std::string text = "{\"a\": 0";
  for (int i = 0; i < 5000; ++i) {
    text += ", \"a\": 1";
  }
  std::vector<Fault> faults;
  static_cast<void>(parse_json(text + "}", "x", faults));
  ASSERT_EQ(faults.size(), 101U);
  EXPECT_EQ(faults.back().message, "and 4,900 more keys given twice");
}

TEST(JsonTree, GoesOnInsideAValueThatReplacesADuplicate) {
  std::vector<Fault> faults;
  const JsonNode root =
      parse_json(R"({"a": {"x": 1}, "b": 2, "a": {"y": {"z": 3, "z": 4}}})", "x", faults);
  ASSERT_EQ(faults.size(), 2U);
  EXPECT_THAT(faults[1].message, HasSubstr("a.y.z: given twice"));
  EXPECT_EQ(root.find("a")->find("x"), nullptr);
  EXPECT_EQ(root.find("a")->find("y")->find("z")->integer, 4);
  EXPECT_EQ(root.find("b")->integer, 2);
}

TEST(JsonTree, PointsAtSyntaxErrorsByLineAndColumn) {
  EXPECT_THAT(syntax_error("{\n  \"a\" 1\n}"), HasSubstr("x.json:2:7: not valid JSON"));
  EXPECT_THAT(syntax_error("{\"a\": 1"), HasSubstr("x.json:1:8: not valid JSON"));
  EXPECT_THAT(syntax_error("{} {}"), HasSubstr("x.json:1:4: not valid JSON"));
  EXPECT_THAT(syntax_error(std::string("\x7f"
                                       "ELF\0\1",
                                       6)),
              HasSubstr("x.json:1:1:"));
}

TEST(JsonTree, RefusesNulWhereverItStands) {
  const auto with_nul = [](const std::string& before, const std::string& after) {
    return syntax_error(before + std::string(1, '\0') + after);
  };
  for (const char* after : {"", "\n{\"b\": 2}", "garbage"}) {
    EXPECT_THAT(with_nul("{\"a\":\n 1}", after), HasSubstr("x.json:2:4: holds a NUL")) << after;
  }
  EXPECT_THAT(with_nul("{\"a\": \"", "\"}"), HasSubstr("x.json:1:8: holds a NUL"));
  EXPECT_THAT(with_nul("{} // ", ""), HasSubstr("x.json:1:7: holds a NUL"));
}

TEST(JsonTree, RefusesNumbersThatAreNotFinite) {
  EXPECT_THAT(syntax_error("{\"a\": {\"b\": 1e999}}"),
              HasSubstr("a.b: expected a finite number, got 1e999"));
  EXPECT_THAT(syntax_error("{\"a\": [1, -1e999]}"), HasSubstr("a[1]: expected a finite number"));
  for (const char* text : {"NaN", "Infinity", "-Infinity"}) {
    EXPECT_THAT(syntax_error(std::string("{\"a\": ") + text + "}"),
                HasSubstr("a number must be finite"))
        << text;
  }
}

TEST(JsonTree, RefusesAbsurdNesting) {
  EXPECT_THAT(syntax_error(std::string(100000, '[')), HasSubstr("deep"));
}

TEST(JsonTree, MessagesStayOnOneShortLine) {
  const std::string error = syntax_error("{\"a\n" + std::string(5000, 'x'));
  EXPECT_EQ(error.find('\n'), std::string::npos);
  EXPECT_LT(error.size(), 400U);
  EXPECT_EQ(printable("a\nb\xff", true), "\"a\\nb\xef\xbf\xbd\"");
  EXPECT_EQ(printable("\x1b\x7f\xc2\x9b\xc2\xa7\xc3\x9b", false),
            "\\u001b\\u007f\\u009b\xc2\xa7\xc3\x9b");
}

TEST(JsonTree, ReadsScalarsOfSets) {
  using Kind = JsonNode::Kind;
  EXPECT_EQ(parse_scalar("true").kind, Kind::boolean);
  EXPECT_EQ(parse_scalar("-12").integer, -12);
  EXPECT_EQ(parse_scalar("1e5").number, 1e5);
  EXPECT_EQ(parse_scalar(".5").number, 0.5);
  for (const char* text : {"", "nan", "inf", "1e999", "12x", "1,000", "True"}) {
    EXPECT_EQ(parse_scalar(text).kind, Kind::text) << text;
  }
}

}  // namespace
}  // namespace transnormer
