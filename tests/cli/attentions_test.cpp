// What the README says of attentions is what the program has.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "cli/program.h"
#include "util/file.h"

namespace transnormer {
namespace {

const std::filesystem::path kSource = TRANSNORMER_SOURCE_DIR;

TEST(AttentionsInTheReadme, AreThoseOfTheProgram) {
  const Outcome table = run_program({"config", "attentions"}, {});
  ASSERT_EQ(table.status, 0) << table.err;
  EXPECT_THAT(table.out, testing::HasSubstr("| `norm` | "));
  EXPECT_THAT(read_file(kSource / "README.md"), testing::HasSubstr("\n\n" + table.out + "\n"))
      << "the table in README.md is not that of `transnormer config attentions`";
}

// tests/model/attention/every_test.cpp carries it through what holds for every attention.
TEST(AttentionsInTheReadme, AreAddedAsTheExampleShows) {
  const std::string example = read_file(kSource / "tests" / "model" / "attention" / "squared.cpp");
  EXPECT_THAT(read_file(kSource / "README.md"), testing::HasSubstr("```cpp\n" + example + "```\n"));
}

}  // namespace
}  // namespace transnormer
