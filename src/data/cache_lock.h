// One process at a time writes to a cache directory.
#pragma once

#include <filesystem>

#include "util/file_lock.h"

namespace transnormer {

// Makes the directory where it is missing, and locks it. Says on the log where that means to wait.
// Throws WriteError where the directory cannot be made or written.
[[nodiscard]] FileLock lock_cache(const std::filesystem::path& directory);

}  // namespace transnormer
