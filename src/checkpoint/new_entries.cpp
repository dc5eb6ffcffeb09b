#include "checkpoint/new_entries.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "util/error.h"

namespace transnormer {
namespace fs = std::filesystem;

NewEntries::NewEntries(NewEntries&& other) noexcept
    : directories_(std::exchange(other.directories_, {})),
      files_(std::exchange(other.files_, {})) {}

void NewEntries::make_directories(const fs::path& directory) {
  std::error_code error;
  if (directory.empty() || fs::is_directory(directory, error)) {
    return;
  }
  make_directories(directory.parent_path());
  if (::mkdir(directory.c_str(), 0777) == 0) {
    directories_.push_back(directory);
  } else if (const int why = errno; !fs::is_directory(directory, error)) {
    throw WriteError(directory.string() + ": cannot be made: " + system_reason(why));
  }
}

void NewEntries::add_file(const fs::path& file) {
  files_.push_back(file);
}

void NewEntries::keep() {
  directories_.clear();
  files_.clear();
}

void NewEntries::remove() {
  for (const fs::path& file : files_) {
    ::unlink(file.c_str());
  }
  for (auto directory = directories_.rbegin(); directory != directories_.rend(); ++directory) {
    ::rmdir(directory->c_str());  // refused where it is not empty
  }
  keep();
}

}  // namespace transnormer
