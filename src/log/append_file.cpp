#include "log/append_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>
#include <utility>

#include "util/error.h"

namespace transnormer::log {

AppendFile::AppendFile(std::filesystem::path path, Report report)
    : path_(std::move(path)),
      report_(std::move(report)),
      descriptor_(::open(path_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666)) {
  if (descriptor_ < 0) {
    throw WriteError(path_.string() + ": cannot be written: " + std::strerror(errno));
  }
}

AppendFile::~AppendFile() {
  if (descriptor_ >= 0) {
    ::close(descriptor_);
  }
}

void AppendFile::append(std::string_view record) {
  if (descriptor_ < 0) {
    return;
  }
  ssize_t written = 0;
  do {
    written = ::write(descriptor_, record.data(), record.size());
  } while (written < 0 && errno == EINTR);
  if (written == static_cast<ssize_t>(record.size())) {
    return;
  }
  std::string why = written < 0 ? std::strerror(errno) : "no space left";
  if (written > 0) {
    const off_t end = ::lseek(descriptor_, 0, SEEK_END);
    if (end < written || ::ftruncate(descriptor_, end - written) != 0) {
      why += " (its last record is torn)";
    }
  }
  ::close(std::exchange(descriptor_, -1));
  report_(path_.string() + ": cannot be written: " + why + "; training goes on without it");
}

}  // namespace transnormer::log
