#include "util/input_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "util/error.h"
#include "util/signal.h"

namespace transnormer {
namespace {

[[noreturn]] void fail(const std::filesystem::path& path, const std::string& why) {
  throw UserError(path.string() + ": cannot be read: " + why);
}

}  // namespace

InputFile::InputFile(const std::filesystem::path& path) : path_(path) {
  // A pipe without a writer must not hold the program; files do not care.
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  if (descriptor < 0) {
    fail(path, system_reason(errno));
  }
  descriptor_ = std::shared_ptr<const int>(new int(descriptor), [](const int* open) {
    ::close(*open);
    delete open;
  });
  const struct stat opened = status();
  if (!S_ISREG(opened.st_mode)) {
    fail(path, "not a regular file");
  }
  size_ = opened.st_size;
}

struct stat InputFile::status() const {
  struct stat status {};
  if (::fstat(*descriptor_, &status) != 0) {
    fail(path_, system_reason(errno));
  }
  return status;
}

void InputFile::read_at(std::int64_t offset, void* data, std::size_t size) const {
  char* at = static_cast<char*>(data);
  while (size > 0) {
    const ssize_t got = ::pread(*descriptor_, at, size, offset);
    if (got < 0 && errno == EINTR) {
      continue;
    }
    if (got < 0) {
      fail(path_, system_reason(errno));
    }
    if (got == 0) {
      throw UserError(path_.string() + ": was cut off at byte " + std::to_string(offset) +
                      " while it was in use");
    }
    at += got;
    offset += got;
    size -= static_cast<std::size_t>(got);
  }
}

std::string InputFile::text() const {
  std::string bytes(static_cast<std::size_t>(size_), '\0');
  read_at(0, bytes.data(), bytes.size());
  return bytes;
}

void InputFile::for_each_piece(std::int64_t offset,
                               const std::function<void(std::string_view)>& take) const {
  constexpr std::int64_t kPiece = std::int64_t{1} << 20;
  std::string piece;
  while (offset < size_) {
    throw_if_stopped();
    piece.resize(static_cast<std::size_t>(std::min(kPiece, size_ - offset)));
    read_at(offset, piece.data(), piece.size());
    take(piece);
    offset += std::ssize(piece);
  }
}

}  // namespace transnormer
