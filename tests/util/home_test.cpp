#include "util/home.h"

#include <gtest/gtest.h>
#include <pwd.h>
#include <stdlib.h>
#include <unistd.h>

#include <optional>

namespace transnormer {
namespace {

class Home : public testing::Test {
 protected:
  Home() {
    if (const char* before = getenv("HOME")) {
      before_ = before;
    }
  }
  ~Home() override { before_ ? setenv("HOME", before_->c_str(), 1) : unsetenv("HOME"); }

 private:
  std::optional<std::string> before_;
};

TEST_F(Home, StandsForATildeAtTheStart) {
  setenv("HOME", "/home/of me", 1);
  EXPECT_EQ(expand_home("~"), "/home/of me");
  EXPECT_EQ(expand_home("~/x/~"), "/home/of me/x/~");
}

TEST_F(Home, LeavesOtherPathsAlone) {
  setenv("HOME", "/home/me", 1);
  for (const char* path : {"", "./~", "a/~/b", "~user", "~user/x", "/~", "x~"}) {
    EXPECT_EQ(expand_home(path), path);
  }
}

TEST_F(Home, IsWhatTheListOfUsersSaysWhereTheEnvironmentDoesNot) {
  const passwd* user = getpwuid(getuid());
  if (user == nullptr || user->pw_dir == nullptr || user->pw_dir[0] != '/') {
    GTEST_SKIP() << "this user is in no list of users";
  }
  const std::string expected = std::string(user->pw_dir) + "/x";
  unsetenv("HOME");
  EXPECT_EQ(expand_home("~/x"), expected);
  setenv("HOME", "", 1);
  EXPECT_EQ(expand_home("~/x"), expected);
}

}  // namespace
}  // namespace transnormer
