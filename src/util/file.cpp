#include "util/file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <optional>
#include <system_error>
#include <utility>

#include "util/error.h"
#include "util/input_file.h"
#include "util/units.h"

namespace transnormer {
namespace {

namespace fs = std::filesystem;

std::string reason() {
  return system_reason(errno);
}

// Writes all of it, going on after signals and short writes. Returns false with errno set.
bool write_all(int descriptor, const char* data, std::size_t size) {
  while (size > 0) {
    const ssize_t written = ::write(descriptor, data, size);
    if (written < 0 && errno == EINTR) {
      continue;
    }
    if (written <= 0) {
      return false;
    }
    data += written;
    size -= static_cast<std::size_t>(written);
  }
  return true;
}

constexpr mode_t kFileMode = 0666;  // less what the umask takes

// What devices and some file systems (of networks, in user space) answer that cannot flush.
bool is_missing_call(int error) {
  return error == EINVAL || error == ENOSYS || error == EOPNOTSUPP;
}

// Flushes to the disk, where there is a way to. Returns false with errno set.
bool flush(int descriptor) {
  return ::fsync(descriptor) == 0 || is_missing_call(errno) || errno == EROFS;
}

// Opens a new file of a name that nothing has, made of `path`: a file that was left under such a
// name is nobody's to overwrite.
int open_new(const fs::path& path, fs::path& name) {
  constexpr int kMostNames = 1000;
  int descriptor = -1;
  for (int i = 0; i < kMostNames && descriptor < 0; ++i) {
    name = path.string() + ".tmp." + std::to_string(::getpid()) +
           (i == 0 ? "" : "." + std::to_string(i));
    descriptor = ::open(name.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, kFileMode);
    if (descriptor < 0 && errno != EEXIST) {
      break;
    }
  }
  if (descriptor < 0) {
    name.clear();
  }
  return descriptor;
}

// The descriptor of this process that a path below /proc names, as /dev/stdout does.
std::optional<int> own_descriptor(const fs::path& file) {
  const std::string name = file.filename();
  int number = -1;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), number);
  const bool is_number = error == std::errc() && end == name.data() + name.size();
  const fs::path own = "/proc/" + std::to_string(::getpid()) + "/fd";
  return is_number && file.parent_path() == own ? std::optional(number) : std::nullopt;
}

void close_file(int descriptor, const fs::path& path) {
  const bool flushed = flush(descriptor);
  const std::string why = flushed ? "" : reason();
  const bool closed = ::close(descriptor) == 0;
  if (!flushed || !closed) {
    throw WriteError(path.string() + ": cannot be written: " + (flushed ? reason() : why));
  }
}

[[noreturn]] void refuse_size(const fs::path& path, std::int64_t limit) {
  throw UserError(path.string() + ": holds more than " + format_bytes(static_cast<double>(limit)) +
                  ", too much to be what is expected");
}

}  // namespace

std::string read_file(const fs::path& path, std::int64_t limit) {
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) {
    throw UserError(path.string() + ": cannot be read: " + reason());
  }
  std::string bytes;
  struct stat status {};
  if (::fstat(descriptor, &status) == 0 && status.st_size > 0) {
    bytes.reserve(static_cast<std::size_t>(std::min<std::int64_t>(status.st_size, limit)));
  }
  char buffer[1 << 16];
  while (true) {
    const ssize_t got = ::read(descriptor, buffer, sizeof buffer);
    if (got < 0 && errno == EINTR) {
      continue;
    }
    if (got < 0) {
      const std::string why = reason();
      ::close(descriptor);
      throw UserError(path.string() + ": cannot be read: " + why);
    }
    if (got == 0) {
      break;
    }
    if (std::ssize(bytes) + got > limit) {
      ::close(descriptor);
      refuse_size(path, limit);
    }
    bytes.append(buffer, static_cast<std::size_t>(got));
  }
  ::close(descriptor);
  return bytes;
}

std::string read_regular_file(const fs::path& path, std::int64_t limit) {
  const InputFile file(path);
  if (file.size() > limit) {
    refuse_size(path, limit);
  }
  return file.text();
}

void write_file(const fs::path& path, std::string_view bytes) {
  const int descriptor = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, kFileMode);
  if (descriptor < 0) {
    throw WriteError(path.string() + ": cannot be written: " + reason());
  }
  if (!write_all(descriptor, bytes.data(), bytes.size())) {
    const std::string why = reason();
    ::close(descriptor);
    throw WriteError(path.string() + ": cannot be written: " + why);
  }
  close_file(descriptor, path);
}

void write_file_atomically(const fs::path& path, std::string_view bytes) {
  FileWriter writer(path);
  writer.write(bytes.data(), bytes.size());
  writer.finish();
}

void sync_file(int descriptor, const fs::path& name) {
  if (!flush(descriptor)) {
    throw WriteError(name.string() + ": cannot be flushed: " + reason());
  }
}

void sync_directory(const fs::path& directory) {
  const int descriptor = ::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor < 0) {
    throw WriteError(directory.string() + ": cannot be flushed: " + reason());
  }
  const bool failed = !flush(descriptor);
  const std::string why = failed ? reason() : "";
  ::close(descriptor);
  if (failed) {
    throw WriteError(directory.string() + ": cannot be flushed: " + why);
  }
}

void reserve_standard_streams() {
  for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (::fcntl(stream, F_GETFD) < 0) {  // then the next file opened is this one
      (void)::open("/dev/null", stream == STDIN_FILENO ? O_WRONLY : O_RDONLY);
    }
  }
}

void make_directories(const fs::path& directory) {
  std::error_code error;
  fs::create_directories(directory, error);
  if (error) {
    throw WriteError(directory.string() + ": cannot be made: " + error.message());
  }
}

bool has_entry(const fs::path& path) {
  std::error_code none;
  return fs::exists(fs::symlink_status(path, none));
}

bool is_link(const fs::path& path) {
  std::error_code none;
  return fs::is_symlink(fs::symlink_status(path, none));
}

bool is_below(const fs::path& file, const fs::path& directory) {
  return std::mismatch(directory.begin(), directory.end(), file.begin(), file.end()).first ==
         directory.end();
}

bool is_open_at(int descriptor, const fs::path& path) {
  struct stat held {};
  struct stat named {};
  return ::fstat(descriptor, &held) == 0 && ::stat(path.c_str(), &named) == 0 &&
         held.st_dev == named.st_dev && held.st_ino == named.st_ino;
}

fs::path resolve_path(const fs::path& path) {
  std::error_code error;
  const fs::path here = fs::current_path(error);
  fs::path resolved = error ? fs::path() : fs::weakly_canonical(here / path, error);
  if (error) {
    throw UserError(path.string() + ": " + error.message());
  }
  if (!resolved.has_filename() && resolved.has_relative_path()) {
    resolved = resolved.parent_path();  // of "d/" or "gone/.."
  }
  return path.is_absolute() ? resolved : resolved.lexically_proximate(here);
}

bool can_flush(const fs::path& file) {
  const int descriptor = ::open(file.c_str(), O_RDONLY | O_CLOEXEC);
  const bool can = descriptor < 0 || ::fsync(descriptor) == 0 || !is_missing_call(errno);
  if (descriptor >= 0) {
    ::close(descriptor);
  }
  return can;
}

void replace_symlink(const fs::path& target, const fs::path& link) {
  if (has_entry(link) && !is_link(link)) {
    throw WriteError(link.string() + ": cannot be linked: something that is no link has this name");
  }
  const fs::path temporary = link.string() + ".tmp." + std::to_string(::getpid());
  if (is_link(temporary)) {
    ::unlink(temporary.c_str());  // left by a process of the same number
  }
  if (::symlink(target.c_str(), temporary.c_str()) != 0) {
    throw WriteError(link.string() + ": cannot be linked: " + reason());
  }
  if (::rename(temporary.c_str(), link.c_str()) != 0) {
    const std::string why = reason();
    ::unlink(temporary.c_str());
    throw WriteError(link.string() + ": cannot be linked: " + why);
  }
  sync_directory(link.parent_path().empty() ? "." : link.parent_path());
}

FileWriter::FileWriter(fs::path path) : path_(std::move(path)), target_(path_) {
  constexpr int kMostLinks = 40;
  bool in_place = false;
  for (int links = 0; links < kMostLinks; ++links) {
    std::error_code none;
    const fs::path directory = target_.has_parent_path() ? target_.parent_path() : ".";
    target_ = fs::weakly_canonical(directory, none) / target_.filename();
    in_place =
        is_below(target_, "/proc") || (is_below(target_, "/dev") && !is_below(target_, "/dev/shm"));
    if (own_descriptor(target_) || !is_link(target_)) {
      break;
    }
    target_ = target_.parent_path() / fs::read_symlink(target_, none);
  }
  std::error_code none;
  const fs::file_status status = fs::status(target_, none);
  in_place = in_place || (fs::exists(status) && !fs::is_regular_file(status));
  if (const std::optional<int> own = own_descriptor(target_)) {
    descriptor_ = ::fcntl(*own, F_DUPFD_CLOEXEC, 0);
  } else if (in_place) {
    descriptor_ = ::open(target_.c_str(), O_WRONLY | O_CLOEXEC);
  } else {
    descriptor_ = open_new(target_, temporary_);
  }
  if (descriptor_ < 0) {
    fail(reason());
  }
}

FileWriter::~FileWriter() {
  if (descriptor_ >= 0) {
    ::close(descriptor_);
  }
  if (!temporary_.empty()) {
    ::unlink(temporary_.c_str());
  }
}

void FileWriter::fail(const std::string& why) const {
  throw WriteError(path_.string() + ": cannot be written: " + why);
}

void FileWriter::write(const void* data, std::size_t size) {
  if (!write_all(descriptor_, static_cast<const char*>(data), size)) {
    fail(reason());
  }
}

void FileWriter::write_at(std::size_t offset, const void* data, std::size_t size) {
  const char* bytes = static_cast<const char*>(data);
  while (size > 0) {
    const ssize_t written = ::pwrite(descriptor_, bytes, size, static_cast<off_t>(offset));
    if (written < 0 && errno == EINTR) {
      continue;
    }
    if (written <= 0) {
      fail(reason());
    }
    bytes += written;
    offset += static_cast<std::size_t>(written);
    size -= static_cast<std::size_t>(written);
  }
}

void FileWriter::finish() {
  close_file(std::exchange(descriptor_, -1), path_);
  if (temporary_.empty()) {
    return;
  }
  if (::rename(temporary_.c_str(), target_.c_str()) != 0) {
    fail(reason());
  }
  temporary_.clear();
  sync_directory(target_.parent_path());
}

}  // namespace transnormer
