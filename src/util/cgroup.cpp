#include "util/cgroup.h"

#include <algorithm>
#include <fstream>
#include <string>
#include <vector>

namespace transnormer {
namespace {

namespace fs = std::filesystem;

// A group's directory and those around it, up to the mount. Where the group's own path is not
// visible, as in some containers, the mount is the group.
void add_group(const fs::path& mount, const std::string& path, std::vector<fs::path>& groups) {
  const fs::path relative = fs::path(path).relative_path().lexically_normal();
  const bool is_outside = !relative.empty() && *relative.begin() == "..";
  for (fs::path inner = is_outside ? "" : relative; !inner.empty() && inner != ".";
       inner = inner.parent_path()) {
    groups.push_back(mount / inner);
  }
  groups.push_back(mount);
}

bool lists(const std::string& controllers, const std::string& controller) {
  return ("," + controllers + ",").find("," + controller + ",") != std::string::npos;
}

// The groups that this process belongs to under a controller ("cpu"). Lines of the membership are
// "0::/path" in version 2, "4:cpu,cpuacct:/path" in version 1.
std::vector<fs::path> groups_of(const CgroupFiles& files, const std::string& controller) {
  std::vector<fs::path> groups;
  std::ifstream membership(files.membership);
  for (std::string line; std::getline(membership, line);) {
    const std::size_t first = line.find(':');
    const std::size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) {
      continue;
    }
    const std::string controllers = line.substr(first + 1, second - first - 1);
    if (controllers.empty()) {
      add_group(files.mount, line.substr(second + 1), groups);
    } else if (lists(controllers, controller)) {
      add_group(files.mount / controller, line.substr(second + 1), groups);
    }
  }
  return groups;
}

// The first number of a file; nothing for "max" or where there is no such file.
std::optional<double> number_in(const fs::path& file) {
  double number = 0;
  return std::ifstream(file) >> number ? std::optional(number) : std::nullopt;
}

std::optional<double> processors_of(const fs::path& group) {
  double quota = 0;
  double period = 0;
  if (std::ifstream(group / "cpu.max") >> quota >> period && period > 0) {
    return quota / period;
  }
  const std::optional<double> old_quota = number_in(group / "cpu.cfs_quota_us");
  const std::optional<double> old_period = number_in(group / "cpu.cfs_period_us");
  const bool is_limited = old_quota && *old_quota > 0 && old_period && *old_period > 0;
  return is_limited ? std::optional(*old_quota / *old_period) : std::nullopt;
}

std::optional<double> memory_of(const fs::path& group) {
  const std::optional<double> bytes = number_in(group / "memory.max");
  return bytes ? bytes : number_in(group / "memory.limit_in_bytes");
}

std::optional<double> smallest(const std::vector<fs::path>& groups,
                               std::optional<double> (*limit_of)(const fs::path&)) {
  std::optional<double> least;
  for (const fs::path& group : groups) {
    const std::optional<double> limit = limit_of(group);
    least = limit && (!least || *limit < *least) ? limit : least;
  }
  return least;
}

}  // namespace

std::optional<double> cgroup_processors(const CgroupFiles& files) {
  return smallest(groups_of(files, "cpu"), processors_of);
}

std::optional<std::int64_t> cgroup_memory_bytes(const CgroupFiles& files) {
  constexpr double kNoLimit = 0x1p62;  // version 1 has no word for it
  const std::optional<double> bytes = smallest(groups_of(files, "memory"), memory_of);
  return bytes && *bytes < kNoLimit ? std::optional(static_cast<std::int64_t>(*bytes))
                                    : std::nullopt;
}

}  // namespace transnormer
