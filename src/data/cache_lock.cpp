#include "data/cache_lock.h"

#include <optional>
#include <utility>

#include "log/console.h"
#include "util/file.h"

namespace transnormer {

FileLock lock_cache(const std::filesystem::path& directory) {
  make_directories(directory);
  if (std::optional<FileLock> lock = FileLock::try_acquire(directory / "lock")) {
    return *std::move(lock);
  }
  log::info("waiting for another process that writes to " + directory.string());
  return FileLock::acquire(directory / "lock");
}

}  // namespace transnormer
