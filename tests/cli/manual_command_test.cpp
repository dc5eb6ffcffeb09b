// manual: the page is complete, and roff takes it without a word.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "cli/workspace.h"

namespace transnormer {
namespace {

using testing::HasSubstr;

TEST(Manual, NamesEachCommandWithItsOptions) {
  const Workspace workspace;
  const Outcome outcome = workspace.run({"manual"});
  EXPECT_EQ(outcome.status, 0);
  EXPECT_EQ(outcome.err, "");
  for (const char* command :
       {"train", "eval", "generate", "prepare", "tokenizer encode", "config check", "inspect",
        "bench", "analyze", "completion", "manual"}) {
    EXPECT_THAT(outcome.out, HasSubstr(std::string("\n.SS transnormer ") + command + "\n"));
  }
  EXPECT_THAT(outcome.out, HasSubstr("\\fB\\-\\-device\\fR \\fIauto|cpu|cuda\\fR\n"));
  EXPECT_THAT(outcome.out, HasSubstr("\\fB\\-\\-max\\-tokens\\fR \\fIINTEGER\\fR\n"));
}

TEST(Manual, IsSoundRoff) {
  if (std::system("command -v groff >/dev/null") != 0) {
    GTEST_SKIP() << "groff is not installed";
  }
  const Workspace workspace;
  workspace.write("page", workspace.run({"manual"}).out);
  const std::string page = (workspace / "page").string();
  ASSERT_EQ(
      std::system(("groff -man -Tutf8 -ww -z '" + page + "' 2>'" + page + ".faults'").c_str()), 0);
  EXPECT_EQ(workspace.read("page.faults"), "");
}

}  // namespace
}  // namespace transnormer
