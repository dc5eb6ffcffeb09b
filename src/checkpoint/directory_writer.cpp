#include "checkpoint/directory_writer.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>

#include <cerrno>
#include <system_error>
#include <utility>

#include "checkpoint/safetensors.h"
#include "util/error.h"
#include "util/file.h"
#include "util/hash.h"
#include "util/version.h"

namespace transnormer {
namespace fs = std::filesystem;
namespace {

std::int64_t size_of(const fs::path& path) {
  std::error_code error;
  const auto size = fs::file_size(path, error);
  if (error) {
    throw WriteError(path.string() + ": cannot be written: " + error.message());
  }
  return static_cast<std::int64_t>(size);
}

[[noreturn]] void fail_to_name(const fs::path& target) {
  throw WriteError(target.string() + ": cannot be given its name: " + system_reason(errno));
}

bool rename_path(const fs::path& from, const fs::path& to) {
  return ::rename(from.c_str(), to.c_str()) == 0;
}

bool exchange(const fs::path& a, const fs::path& b) {
  return ::renameat2(AT_FDCWD, a.c_str(), AT_FDCWD, b.c_str(), RENAME_EXCHANGE) == 0;
}

}  // namespace

void make_directory(const fs::path& path) {
  if (::mkdir(path.c_str(), 0777) != 0) {
    throw WriteError(path.string() + ": cannot be made: " + system_reason(errno));
  }
}

DirectoryWriter::DirectoryWriter(fs::path temporary, const DirectoryKind& kind)
    : path_(std::move(temporary)), kind_(kind) {
  std::error_code none;
  if (fs::is_directory(fs::symlink_status(path_, none))) {
    remove_made_files(path_, kind_);
  }
  make_directory(path_);
}

DirectoryWriter::~DirectoryWriter() {
  try {
    remove_made_files(path_, kind_, heir_);
  } catch (const UserError&) {  // what is left goes when something is written there next
  }
}

void DirectoryWriter::write_tensors(const std::string& name,
                                    const std::vector<NamedTensor>& tensors) {
  const std::string sha256 = write_safetensors(path_ / name, tensors);
  files_[name] = {size_of(path_ / name), sha256};
}

void DirectoryWriter::write_bytes(const std::string& name, std::string_view bytes) {
  write_file(path_ / name, bytes);
  files_[name] = {static_cast<std::int64_t>(bytes.size()), sha256(bytes)};
}

void DirectoryWriter::write_manifest(Manifest manifest) {
  manifest.format = kCheckpointFormat;
  manifest.program = std::string("transnormer ") + program_version();
  manifest.files = files_;
  write_file(path_ / kind_.manifest, manifest_to_json(manifest));
  sync_directory(path_);
}

void DirectoryWriter::take_name(const fs::path& target, const fs::path& aside) {
  std::error_code ignored;
  if (!has_entry(target)) {
    if (!rename_path(path_, target)) {
      fail_to_name(target);
    }
    sync_directory(target.parent_path());
    return;
  }
  if (!fs::is_directory(target, ignored)) {
    throw WriteError(target.string() + ": cannot be given its name: it is that of a file");
  }
  heir_ = target;
  if (!exchange(path_, target)) {
    if (!rename_path(target, aside)) {
      fail_to_name(target);
    }
    if (!rename_path(path_, target)) {
      const int why = errno;
      rename_path(aside, target);
      errno = why;
      fail_to_name(target);
    }
    try {
      remove_made_files(aside, kind_, target);
    } catch (const UserError&) {  // the new one has its name; the rest goes some other time
    }
  }
  sync_directory(target.parent_path());
}

}  // namespace transnormer
