#include "util/error.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <string>
#include <vector>

namespace transnormer {
namespace {

TEST(UserError, KeepsEachFaultAndPrintsOneALine) {
  const UserError error(std::vector<std::string>{"model.dim: too small", "data.train: missing"});
  EXPECT_EQ(error.faults().size(), 2U);
  EXPECT_STREQ(error.what(), "model.dim: too small\ndata.train: missing");
}

TEST(WriteError, IsAUserErrorWithOneFault) {
  try {
    throw WriteError("disk full");
  } catch (const UserError& error) {
    EXPECT_EQ(error.faults(), std::vector<std::string>{"disk full"});
  }
}

TEST(SystemReason, NamesTheLimitToRaise) {
  EXPECT_EQ(system_reason(ENOENT), "No such file or directory");
  EXPECT_NE(system_reason(EFBIG).find("ulimit -f"), std::string::npos);
  EXPECT_NE(system_reason(EMFILE).find("ulimit -n"), std::string::npos);
  EXPECT_NE(system_reason(ENOMEM).find("ulimit -v"), std::string::npos);
}

TEST(ExitStatus, HasTheNumbersThatScriptsRelyOn) {
  EXPECT_EQ(static_cast<int>(ExitStatus::done), 0);
  EXPECT_EQ(static_cast<int>(ExitStatus::our_fault), 1);
  EXPECT_EQ(static_cast<int>(ExitStatus::user_fault), 2);
  EXPECT_EQ(static_cast<int>(ExitStatus::diverged), 3);
  EXPECT_EQ(static_cast<int>(ExitStatus::save_failed), 4);
  EXPECT_EQ(static_cast<int>(ExitStatus::interrupted), 130);
  EXPECT_EQ(static_cast<int>(ExitStatus::terminated), 143);
}

}  // namespace
}  // namespace transnormer
