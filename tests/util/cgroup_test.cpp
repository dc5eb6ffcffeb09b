#include "util/cgroup.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <fstream>
#include <string>

namespace transnormer {
namespace {

namespace fs = std::filesystem;

// The kernel's files, as they would stand for a process.
class Cgroup : public testing::Test {
 protected:
  Cgroup() {
    std::string name = (fs::temp_directory_path() / "cgroup-test-XXXXXX").string();
    root_ = ::mkdtemp(name.data());
    files_ = {.membership = root_ / "membership", .mount = root_ / "mount"};
  }
  ~Cgroup() override { fs::remove_all(root_); }

  void belongs_to(const std::string& lines) { std::ofstream(files_.membership) << lines; }
  void write(const std::string& name, const std::string& text) {
    fs::create_directories((files_.mount / name).parent_path());
    std::ofstream(files_.mount / name) << text << '\n';
  }
  [[nodiscard]] std::optional<double> processors() const { return cgroup_processors(files_); }
  [[nodiscard]] std::optional<std::int64_t> memory() const { return cgroup_memory_bytes(files_); }

 private:
  fs::path root_;
  CgroupFiles files_;
};

TEST_F(Cgroup, LimitsNothingWhereThereIsNone) {
  EXPECT_EQ(processors(), std::nullopt);
  belongs_to("0::/a\n");
  EXPECT_EQ(processors(), std::nullopt);
  write("a/cpu.max", "max 100000");
  write("a/memory.max", "max");
  EXPECT_EQ(processors(), std::nullopt);
  EXPECT_EQ(memory(), std::nullopt);
}

TEST_F(Cgroup, OfTheProcessCountsInVersion2) {
  belongs_to("0::/slice/job\n");
  write("slice/job/cpu.max", "150000 100000");
  write("slice/job/memory.max", "1073741824");
  write("other/cpu.max", "10000 100000");
  EXPECT_EQ(processors(), 1.5);
  EXPECT_EQ(memory(), 1073741824);
}

TEST_F(Cgroup, AroundTheProcesssOwnCountsWhereItIsLower) {
  belongs_to("0::/slice/job\n");
  write("slice/job/cpu.max", "800000 100000");
  write("slice/cpu.max", "200000 100000");
  write("cpu.max", "400000 100000");
  write("slice/job/memory.max", "max");
  write("memory.max", "5000000");
  EXPECT_EQ(processors(), 2);
  EXPECT_EQ(memory(), 5000000);
}

TEST_F(Cgroup, OfVersion1HasADirectoryAController) {
  belongs_to("5:memory:/docker/x\n4:cpuset:/\n3:cpu,cpuacct:/docker/x\n1:name=systemd:/\n");
  write("cpu/docker/x/cpu.cfs_quota_us", "300000");
  write("cpu/docker/x/cpu.cfs_period_us", "100000");
  write("cpu/cpu.cfs_quota_us", "-1");
  write("cpu/cpu.cfs_period_us", "100000");
  write("memory/docker/x/memory.limit_in_bytes", "2000000");
  write("memory/memory.limit_in_bytes", "9223372036854771712");
  EXPECT_EQ(processors(), 3);
  EXPECT_EQ(memory(), 2000000);
}

TEST_F(Cgroup, OfVersion1WithoutALimitLimitsNothing) {
  belongs_to("5:memory:/\n3:cpu:/\n");
  write("cpu/cpu.cfs_quota_us", "-1");
  write("cpu/cpu.cfs_period_us", "100000");
  write("memory/memory.limit_in_bytes", "9223372036854771712");
  EXPECT_EQ(processors(), std::nullopt);
  EXPECT_EQ(memory(), std::nullopt);
}

TEST_F(Cgroup, ThatIsNotVisibleIsTheMountItself) {
  belongs_to("0::/../../elsewhere\n");
  write("cpu.max", "50000 100000");
  write("memory.max", "7000000");
  EXPECT_EQ(processors(), 0.5);
  EXPECT_EQ(memory(), 7000000);
  belongs_to("0::/not/mounted\n");
  EXPECT_EQ(processors(), 0.5);
}

}  // namespace
}  // namespace transnormer
