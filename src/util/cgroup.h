// What control groups (containers, systemd, batch systems) grant this process: its own group's
// limit, or a lower one of a group around it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>

namespace transnormer {

// Where the kernel tells it. Both versions of control groups are read.
struct CgroupFiles {
  std::filesystem::path membership = "/proc/self/cgroup";
  std::filesystem::path mount = "/sys/fs/cgroup";
};

// Time of processors a time, 1.5 being one and a half; nothing where there is no limit.
[[nodiscard]] std::optional<double> cgroup_processors(const CgroupFiles& files = {});
[[nodiscard]] std::optional<std::int64_t> cgroup_memory_bytes(const CgroupFiles& files = {});

}  // namespace transnormer
