#include "log/append_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <memory>
#include <utility>

#include "util/error.h"
#include "util/file.h"

namespace transnormer::log {
namespace {

struct CloseDescriptor {
  void operator()(const int* descriptor) const { ::close(*descriptor); }
};

}  // namespace

AppendFile::AppendFile(std::filesystem::path path, AppendFileOptions options)
    : path_(std::move(path)), options_(std::move(options)), lost_{.file = path_} {
  if (!open()) {
    throw WriteError(path_.string() + ": cannot be written: " + system_reason(errno));
  }
}

AppendFile::~AppendFile() {
  if (descriptor_ >= 0) {
    ::close(descriptor_);
  }
}

bool AppendFile::open() {
  constexpr mode_t kMode = 0666;  // less what the umask takes
  const int opened = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, kMode);
  if (opened < 0) {
    return false;
  }
  if (descriptor_ >= 0) {
    ::close(descriptor_);
  }
  descriptor_ = opened;
  torn_from_ = -1;
  return true;
}

bool AppendFile::cut_torn_record() {
  if (torn_from_ >= 0 && ::ftruncate(descriptor_, torn_from_) != 0) {
    return false;
  }
  torn_from_ = -1;
  return true;
}

std::string AppendFile::write(std::string_view record) {
  if (options_.still_ours && !options_.still_ours()) {
    return "its directory is no longer that of this run";
  }
  if (!is_open_at(descriptor_, path_)) {
    if (options_.make_place) {
      options_.make_place();
    }
    if (!open()) {
      return system_reason(errno);
    }
  }
  struct stat now {};
  if (!cut_torn_record() || ::fstat(descriptor_, &now) != 0) {
    return system_reason(errno);
  }
  const std::string bytes = (now.st_size == 0 ? options_.header : "") + std::string(record);
  std::string_view rest = bytes;
  while (!rest.empty()) {
    const ssize_t written = ::write(descriptor_, rest.data(), rest.size());
    if (written > 0) {  // a part, where the disk is full: the next call tells why
      rest.remove_prefix(static_cast<std::size_t>(written));
    } else if (written == 0 || errno != EINTR) {
      const std::string why = written < 0 ? system_reason(errno) : "no space left";
      if (rest.size() < bytes.size()) {
        torn_from_ = now.st_size;
        (void)cut_torn_record();  // else with the next record
      }
      return why;
    }
  }
  return "";
}

// Its own descriptor, so that records need not wait for the disk.
void AppendFile::flush() const {
  int descriptor = -1;
  {
    const std::lock_guard lock(mutex_);
    descriptor = ::fcntl(descriptor_, F_DUPFD_CLOEXEC, 0);
  }
  if (descriptor < 0) {
    throw WriteError(path_.string() + ": cannot be flushed: " + system_reason(errno));
  }
  const std::unique_ptr<int, CloseDescriptor> closed(&descriptor);
  sync_file(descriptor, path_);
}

void AppendFile::append(std::string_view record) {
  const std::lock_guard lock(mutex_);
  const std::string fault = write(record);
  const bool failed_before = std::exchange(lost_.still_fails, !fault.empty());
  if (fault.empty()) {
    return;
  }
  ++lost_.count;
  if (!failed_before) {
    options_.report(path_.string() + ": cannot be written: " + fault +
                    "; training goes on, each record is tried again");
  }
}

}  // namespace transnormer::log
