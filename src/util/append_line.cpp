#include "util/append_line.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <string>

#include "util/error.h"
#include "util/file_lock.h"

namespace transnormer {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void fail(const fs::path& path, const std::string& reason) {
  throw WriteError(path.string() + ": no line can be added: " + reason);
}

// Closed when dropped.
class Descriptor {
 public:
  explicit Descriptor(const fs::path& path)
      : number_(::open(path.c_str(), O_RDWR | O_APPEND | O_NONBLOCK | O_CLOEXEC)) {
    if (number_ < 0) {
      fail(path, system_reason(errno));
    }
  }
  ~Descriptor() { ::close(number_); }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  operator int() const { return number_; }

 private:
  int number_;
};

std::string read_at(int file, off_t offset, std::size_t size) {
  std::string bytes(size, '\0');
  const ssize_t got = ::pread(file, bytes.data(), size, offset);
  bytes.resize(got > 0 ? static_cast<std::size_t>(got) : 0);
  return bytes;
}

}  // namespace

void append_line(const fs::path& path, std::string_view line, std::string_view beginning) {
  std::error_code none;
  if (fs::exists(path, none) && !fs::is_regular_file(path, none)) {
    fail(path, "it is no regular file");
  }
  const FileLock lock = FileLock::acquire(path);
  const Descriptor file(path);
  struct stat status {};
  if (::fstat(file, &status) != 0) {
    fail(path, system_reason(errno));
  }
  const off_t end = status.st_size;
  if (end > 0 && read_at(file, 0, beginning.size()) != beginning) {
    fail(path, "it holds something else");
  }
  const bool is_torn = end > 0 && read_at(file, end - 1, 1) != "\n";
  const std::string bytes = (is_torn ? "\n" : "") + std::string(line) + '\n';
  const ssize_t written = ::write(file, bytes.data(), bytes.size());
  if (written != static_cast<ssize_t>(bytes.size())) {
    const std::string reason = written < 0 ? system_reason(errno) : "no space";
    // By the lock nobody has written behind it.
    if (written > 0 && lock.works()) {
      (void)!::ftruncate(file, end);
    }
    fail(path, reason);
  }
}

}  // namespace transnormer
