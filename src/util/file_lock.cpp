#include "util/file_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <thread>
#include <utility>

#include "util/error.h"
#include "util/signal.h"

namespace transnormer {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void fail(const fs::path& path) {
  throw WriteError(path.string() + ": cannot be locked: " + system_reason(errno));
}

// What file systems answer that know no locks.
bool is_unsupported(int error) {
  return error == ENOSYS || error == ENOLCK || error == EINVAL || error == EOPNOTSUPP;
}

}  // namespace

FileLock FileLock::open(const fs::path& path) {
  constexpr mode_t kMode = 0666;  // less what the umask takes
  int descriptor = ::open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, kMode);
  const bool made = descriptor >= 0;
  if (!made && errno == EEXIST) {
    descriptor = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, kMode);
  }
  if (descriptor < 0 && (errno == EACCES || errno == EPERM)) {
    descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  }
  if (descriptor < 0) {
    fail(path);
  }
  return {descriptor, made};
}

bool FileLock::lock(const fs::path& path) {
  while (::flock(descriptor_, LOCK_EX | LOCK_NB) != 0) {
    if (errno == EWOULDBLOCK) {
      return false;
    }
    if (is_unsupported(errno)) {
      works_ = false;
      return true;
    }
    if (errno != EINTR) {
      fail(path);
    }
  }
  return true;
}

std::optional<FileLock> FileLock::try_acquire(const fs::path& path) {
  constexpr int kMostTries = 100;
  for (int tries = 0; tries < kMostTries; ++tries) {
    FileLock lock = open(path);
    if (!lock.lock(path)) {
      return std::nullopt;
    }
    if (lock.is_at(path)) {
      return lock;
    }
    // Its last holder removed the file before it was locked here; the next one may be there.
  }
  throw WriteError(path.string() + ": cannot be locked: it is removed again and again");
}

FileLock FileLock::acquire(const fs::path& path) {
  constexpr std::chrono::milliseconds kPause{50};
  while (true) {
    if (std::optional<FileLock> lock = try_acquire(path)) {
      return *std::move(lock);
    }
    throw_if_stopped();
    std::this_thread::sleep_for(kPause);
  }
}

bool FileLock::is_at(const fs::path& path) const {
  struct stat held {};
  struct stat named {};
  return ::fstat(descriptor_, &held) == 0 && ::stat(path.c_str(), &named) == 0 &&
         held.st_dev == named.st_dev && held.st_ino == named.st_ino;
}

void FileLock::note(std::string_view text) const {
  if (::ftruncate(descriptor_, 0) == 0) {
    (void)!::pwrite(descriptor_, text.data(), text.size(), 0);
  }
}

FileLock::~FileLock() {
  if (descriptor_ >= 0) {
    ::close(descriptor_);
  }
}

FileLock::FileLock(FileLock&& other) noexcept
    : descriptor_(std::exchange(other.descriptor_, -1)),
      made_file_(other.made_file_),
      works_(other.works_) {}

FileLock& FileLock::operator=(FileLock&& other) noexcept {
  std::swap(descriptor_, other.descriptor_);
  std::swap(made_file_, other.made_file_);
  std::swap(works_, other.works_);
  return *this;
}

}  // namespace transnormer
