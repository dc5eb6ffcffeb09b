#include "data/cache_lock.h"

#include <regex>
#include <system_error>
#include <utility>

#include "log/console.h"
#include "util/file.h"

namespace transnormer {
namespace {

namespace fs = std::filesystem;

// A file that this program makes in a cache directory, as a FileWriter names it until it is whole;
// earlier versions put one more ".tmp" between.
bool is_unfinished(const std::string& name) {
  static const std::regex kName(
      "((train|valid|test)-[0-9a-f]{32}\\.tokens(\\.tmp)?"
      "|tokenizer-[0-9a-f]{32}\\.(txt|model)(\\.sha256)?"
      "|index\\.json)\\.tmp\\.[0-9]+(\\.[0-9]+)?");
  return std::regex_match(name, kName);
}

// Whoever writes holds the lock, so what is unfinished now stays so.
void remove_unfinished(const fs::path& directory) {
  std::error_code error;
  for (fs::directory_iterator entry(directory, error), end; !error && entry != end;
       entry.increment(error)) {
    std::error_code ignored;
    if (is_unfinished(entry->path().filename().string()) &&
        entry->symlink_status(ignored).type() == fs::file_type::regular) {
      fs::remove(entry->path(), ignored);
    }
  }
}

// Where the file system has no locks, another process may be writing.
FileLock cleaned(FileLock lock, const fs::path& directory) {
  if (lock.works()) {
    remove_unfinished(directory);
  }
  return lock;
}

}  // namespace

FileLock lock_cache(const fs::path& directory) {
  make_directories(directory);
  if (std::optional<FileLock> lock = try_lock_cache(directory)) {
    return *std::move(lock);
  }
  log::info("waiting for another process that writes to " + directory.string());
  return cleaned(FileLock::acquire(directory / "lock"), directory);
}

std::optional<FileLock> try_lock_cache(const fs::path& directory) {
  std::optional<FileLock> lock = FileLock::try_acquire(directory / "lock");
  if (lock) {
    lock = cleaned(*std::move(lock), directory);
  }
  return lock;
}

}  // namespace transnormer
