#include "checkpoint/whole_directory.h"

#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>
#include <utility>

#include "checkpoint/layout.h"
#include "util/error.h"
#include "util/file.h"
#include "util/units.h"

namespace transnormer {
namespace fs = std::filesystem;
namespace {

constexpr const char* kElsewhere = "; choose a new directory";

// What a run owns is no place for the results of other commands.
void require_outside_runs(const fs::path& path) {
  for (fs::path above = path.parent_path(); above != above.parent_path();
       above = above.parent_path()) {
    std::error_code none;
    const bool is_run =
        fs::is_directory(above / kCheckpointsDirectory, none) && has_entry(above / kConfigFile);
    if (is_run || has_entry(above / kManifestFile)) {
      throw UserError("--out: " + path.string() + " lies inside the " +
                      (is_run ? "run " : "checkpoint ") + above.string() + kElsewhere);
    }
  }
}

// Nothing there must be lost.
void require_replaceable(const fs::path& path, const WholeDirectoryKind& kind) {
  if (!has_entry(path)) {
    return;
  }
  std::error_code none;
  if (!fs::is_directory(path, none)) {
    throw UserError("--out: expected a directory, got the file " + path.string());
  }
  if (entries_of(path).empty()) {
    return;
  }
  const auto refuse = [&](const std::string& why) {
    throw UserError("--out: " + path.string() + ' ' + why + kElsewhere);
  };
  if (!has_entry(path / kind.files.manifest)) {
    refuse("holds what is not " + kind.noun);
  }
  const Manifest manifest = read_manifest(path, kind.files.manifest);
  if (!kind.is_of_kind(manifest)) {
    refuse("is not " + kind.noun);
  }
  try {
    (void)open_verified(path, manifest, {});
  } catch (const DamagedCheckpointError& error) {
    refuse("was changed since it was written (" + error.faults().front() + ")");
  }
  for (const std::string& name : kind.files.files) {
    if (has_entry(path / name) && !manifest.files.contains(name)) {
      refuse("holds " + name + ", which is no part of " + kind.noun);
    }
  }
}

fs::path beside(const fs::path& path, const std::string& before, const std::string& behind = "") {
  return path.parent_path() / (before + path.filename().string() + behind);
}

// What killed processes left of earlier tries goes, and an older directory that stood aside when
// one was killed comes back.
void clean_up_beside(const fs::path& path, const fs::path& aside, const DirectoryKind& kind) {
  std::error_code none;
  if (fs::is_directory(fs::symlink_status(aside, none))) {
    if (!has_entry(path)) {
      fs::rename(aside, path);
    } else {
      remove_made_files(aside, kind, path);
    }
  }
  const std::string begin = beside(path, ".tmp-", ".").filename().string();
  for (const fs::path& entry : entries_of(path.parent_path())) {
    const std::string name = entry.filename().string();
    const auto process =
        name.starts_with(begin) ? parse_integer(name.substr(begin.size())) : std::nullopt;
    const bool is_dead =
        process && *process > 0 && ::kill(static_cast<pid_t>(*process), 0) != 0 && errno == ESRCH;
    if (is_dead && fs::is_directory(fs::symlink_status(entry, none))) {
      remove_made_files(entry, kind);
    }
  }
}

fs::path aside_of(const fs::path& path) {
  return beside(path, ".old-");
}

}  // namespace

WholeDirectory::WholeDirectory(const fs::path& given, const WholeDirectoryKind& kind)
    : path_(resolve_path(fs::absolute(given))) {
  if (path_.filename().empty()) {
    path_ = path_.parent_path();  // "DIR/"
  }
  require_outside_runs(path_);
  parents_.make_directories(path_.parent_path());
  clean_up_beside(path_, aside_of(path_), kind.files);
  require_replaceable(path_, kind);
  writer_.emplace(beside(path_, ".tmp-", '.' + std::to_string(::getpid())), kind.files);
}

void WholeDirectory::finish(Manifest manifest) {
  writer_->write_manifest(std::move(manifest));
  writer_->take_name(path_, aside_of(path_));
  writer_.reset();  // what it took the place of goes
  parents_.keep();
}

}  // namespace transnormer
