#include "ops/trust/verdict.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "util/file.h"
#include "util/temporary_directory.h"

namespace transnormer::ops {
namespace {

namespace fs = std::filesystem;

const VerdictKey kKey{"NVIDIA A100, 8.0", "13.0", "abc, LibTorch 2.11.0"};
const Faults kFaults{{"srms_norm", "its results in Float differ by 0.2 of the largest"},
                     {"feature_backward", "it gives no results"}};

fs::path only_file(const fs::path& folder) {
  const fs::directory_iterator entries(folder);
  return entries->path();
}

class Verdict : public testing::Test {
 protected:
  test::TemporaryDirectory directory;
  fs::path first = directory.path() / "beside", second = directory.path() / "cache/transnormer";
};

TEST_F(Verdict, IsFoundAgainInTheFolderThatTookIt) {
  EXPECT_EQ(load_verdict(kKey, {first, second}), std::nullopt);
  save_verdict(kKey, kFaults, {first, second});
  EXPECT_EQ(load_verdict(kKey, {first, second}), kFaults);
  EXPECT_FALSE(fs::exists(second));
  save_verdict(kKey, {}, {first, second});  // anew, in its place
  EXPECT_EQ(load_verdict(kKey, {first, second}), Faults{});
}

TEST_F(Verdict, GoesIntoTheNextFolderWhereTheFirstTakesNone) {
  write_file(first, "a file where the folder would be");
  save_verdict(kKey, kFaults, {first, second});
  EXPECT_EQ(load_verdict(kKey, {first, second}), kFaults);
  save_verdict(kKey, kFaults, {first});  // nowhere, and no fault either
  EXPECT_EQ(load_verdict(kKey, {first}), std::nullopt);
}

TEST_F(Verdict, HoldsForItsDeviceDriverAndBuildOnly) {
  save_verdict(kKey, kFaults, {first});
  for (auto member : {&VerdictKey::device, &VerdictKey::driver, &VerdictKey::build}) {
    VerdictKey other = kKey;
    other.*member += "1";
    EXPECT_EQ(load_verdict(other, {first}), std::nullopt);
    save_verdict(other, {}, {first});
  }
  EXPECT_EQ(load_verdict(kKey, {first}), kFaults);  // the others have their own
}

TEST_F(Verdict, IsNoneWhereItIsDamagedOrForeign) {
  save_verdict(kKey, kFaults, {first});
  const fs::path file = only_file(first);
  const std::string whole = read_file(file);
  const std::size_t line = whole.find("feature_backward: ");
  std::string trusting = whole;
  trusting.replace(line, whole.find('\n', line) - line, "feature_backward: agrees");
  for (const std::string& damaged :
       {std::string(), whole.substr(0, whole.size() / 2), whole + "more\n", trusting,
        std::string("\0\1\2", 3), whole.substr(whole.find('\n') + 1)}) {
    write_file(file, damaged);
    EXPECT_EQ(load_verdict(kKey, {first}), std::nullopt) << damaged;
    save_verdict(kKey, kFaults, {first, second});
    EXPECT_EQ(load_verdict(kKey, {first}), kFaults);
  }
  fs::remove(file);
  fs::create_directory(file);
  EXPECT_EQ(load_verdict(kKey, {first}), std::nullopt);
  fs::remove(file);
  ASSERT_EQ(::mkfifo(file.c_str(), 0600), 0);  // does not wait for a writer
  EXPECT_EQ(load_verdict(kKey, {first}), std::nullopt);
}

TEST_F(Verdict, KeepsAFaultOfSeveralLinesInOne) {
  save_verdict(kKey, {{"feature", "it fails:\nsrms_norm: agrees"}}, {first});
  EXPECT_EQ(load_verdict(kKey, {first}), (Faults{{"feature", "it fails: srms_norm: agrees"}}));
}

TEST(UserCache, IsWhereTheUsersProgramsKeepTheirs) {
  ::setenv("HOME", "/home/someone", 1);
  ::unsetenv("XDG_CACHE_HOME");
  EXPECT_EQ(user_cache(), fs::path("/home/someone/.cache/transnormer"));
  ::setenv("XDG_CACHE_HOME", "/big/cache", 1);
  EXPECT_EQ(user_cache(), fs::path("/big/cache/transnormer"));
  ::setenv("XDG_CACHE_HOME", "relative", 1);  // to be ignored, as its specification says
  EXPECT_EQ(user_cache(), fs::path("/home/someone/.cache/transnormer"));
}

}  // namespace
}  // namespace transnormer::ops
