#include "util/file_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <thread>
#include <utility>

#include "util/error.h"
#include "util/file.h"
#include "util/signal.h"

namespace transnormer {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void fail(const fs::path& path) {
  throw WriteError(path.string() + ": cannot be locked: " + system_reason(errno));
}

// What file systems answer that know no locks; those of networks may know none on a file that is
// open to be read only (EBADF).
bool is_unsupported(int error) {
  return error == ENOSYS || error == ENOLCK || error == EINVAL || error == EOPNOTSUPP ||
         error == EBADF;
}

// Nothing, or the number of a process and a line end: what note() may write over.
bool holds_a_note(int descriptor) {
  std::array<char, 32> bytes{};
  const ssize_t size = ::pread(descriptor, bytes.data(), bytes.size(), 0);
  return size >= 0 && size < std::ssize(bytes) &&
         std::string_view(bytes.data(), static_cast<std::size_t>(size))
                 .find_first_not_of("0123456789\n") == std::string_view::npos;
}

}  // namespace

// Not through a link: what it leads to is no lock of ours.
FileLock FileLock::open(const fs::path& path) {
  constexpr mode_t kMode = 0666;  // less what the umask takes
  constexpr int kFlags = O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC;
  int descriptor = ::open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | kFlags, kMode);
  const bool made = descriptor >= 0;
  if (!made && errno == EEXIST) {
    descriptor = ::open(path.c_str(), O_RDWR | O_CREAT | kFlags, kMode);
  }
  const int why = errno;
  if (descriptor < 0 && (why == EACCES || why == EPERM || why == EROFS)) {
    descriptor = ::open(path.c_str(), O_RDONLY | kFlags);
    errno = errno == ENOENT ? why : errno;
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
  return is_open_at(descriptor_, path);
}

void FileLock::note(std::string_view text) const {
  if (made_file_ || holds_a_note(descriptor_)) {
    (void)!::ftruncate(descriptor_, 0);
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
