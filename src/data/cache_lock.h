// One process at a time writes to a cache directory.
#pragma once

#include <filesystem>
#include <optional>

#include "util/file_lock.h"

namespace transnormer {

// Makes the directory where it is missing, and locks it. Says on the log where that means to wait.
// What writers that died have left there unfinished goes then: files of ours by name, no others.
// Throws WriteError where the directory cannot be made or written, StoppedError when a signal asks
// to stop while it waits.
[[nodiscard]] FileLock lock_cache(const std::filesystem::path& directory);

// The same without waiting: nothing where another process holds the lock.
[[nodiscard]] std::optional<FileLock> try_lock_cache(const std::filesystem::path& directory);

}  // namespace transnormer
