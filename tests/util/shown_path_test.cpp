#include "util/shown_path.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <string>

namespace transnormer {
namespace {

namespace fs = std::filesystem;

TEST(ShownPath, IsSeenFromTheWorkingDirectoryWhereThatIsShorter) {
  EXPECT_EQ(shown_path(fs::current_path() / "runs/mine"), "runs/mine");
  EXPECT_EQ(shown_path("runs/mine"), "runs/mine");
  EXPECT_EQ(shown_path("/"), "/");
  EXPECT_EQ(shown_path(""), "");
}

TEST(ShownPath, KeepsTheEndOfWhatIsLong) {
  const std::string path = "a/" + std::string(60, 'b') + "/checkpoints/step-00000040";
  EXPECT_EQ(shown_path(path, 40), "[..]/checkpoints/step-00000040");
  EXPECT_EQ(shown_path(path, path.size()), path);
  const std::string name(70, 'c');
  EXPECT_EQ(shown_path(name, 40), "[..]" + std::string(36, 'c'));
}

}  // namespace
}  // namespace transnormer
