#include "checkpoint/removal.h"

#include <stdio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <set>
#include <string>
#include <string_view>

#include "checkpoint/layout.h"
#include "checkpoint/manifest.h"
#include "util/error.h"
#include "util/file.h"

namespace transnormer {
namespace fs = std::filesystem;
namespace {

[[noreturn]] void fail(const fs::path& path) {
  throw WriteError(path.string() + ": cannot be removed: " + system_reason(errno));
}

void unlink_entry(const fs::path& path) {
  if (::unlink(path.c_str()) != 0 && errno != ENOENT) {
    fail(path);
  }
}

// A directory itself, no link to one.
bool is_own_directory(const fs::path& path) {
  std::error_code none;
  return fs::is_directory(fs::symlink_status(path, none));
}

// What a directory consists of, by its manifest and by what every one of its kind has.
struct Contents {
  std::set<std::string> files;
  bool is_newer = false;  // than this program
};

Contents contents_of(const fs::path& directory, const DirectoryKind& kind) {
  Contents contents{.files = {kind.files.begin(), kind.files.end()}};
  contents.files.insert(kind.manifest);
  try {
    for (const auto& [name, file] : read_manifest(directory, kind.manifest).files) {
      contents.files.insert(name);
    }
  } catch (const NewerFormatError&) {
    contents.is_newer = true;
  } catch (const UserError&) {  // none yet, or damaged; old all the same
  }
  return contents;
}

// "NAME" of "NAME.tmp.17" or "NAME.tmp.17.2", what a writer that was killed leaves; else all.
std::string_view without_mark(std::string_view name) {
  constexpr std::string_view kMark = ".tmp.";
  const std::size_t mark = name.rfind(kMark);
  if (mark == std::string_view::npos) {
    return name;
  }
  const std::string_view rest = name.substr(mark + kMark.size());
  const bool is_mark =
      !rest.empty() && rest.find_first_not_of("0123456789.") == std::string_view::npos;
  return is_mark ? name.substr(0, mark) : name;
}

// Gives a directory, or a link to one, another name. One that is taken by anything but an empty
// directory stays as it is.
bool rename_directory(const fs::path& from, const fs::path& to) {
  return ::rename(from.c_str(), to.c_str()) == 0;
}

// As remove_made_files(), where the names of the program's files are known.
bool remove_files(const fs::path& directory, const std::set<std::string>& names,
                  const fs::path& heir) {
  if (is_link(directory)) {  // what it leads to stands elsewhere, and is no business of ours
    unlink_entry(directory);
    return true;
  }
  for (const fs::path& path : entries_of(directory)) {
    const std::string name = path.filename().string();
    if (!is_own_directory(path) && names.contains(std::string(without_mark(name)))) {
      unlink_entry(path);
    } else if (!heir.empty() && !has_entry(heir / name)) {
      ::rename(path.c_str(), (heir / name).c_str());
    }
  }
  if (::rmdir(directory.c_str()) == 0 || errno == ENOENT) {
    return true;
  }
  if (errno != ENOTEMPTY && errno != EEXIST) {
    fail(directory);
  }
  return false;
}

void remove_temporary(const fs::path& temporary, const fs::path& name) {
  if (is_own_directory(temporary) &&
      !remove_made_files(temporary, checkpoint_directory(),
                         is_own_directory(name) ? name : fs::path()) &&
      !rename_directory(temporary, name)) {
    throw WriteError(temporary.string() +
                     ": holds files that are not the program's; move them elsewhere");
  }
}

void put_back_or_remove(const fs::path& checkpoints, std::int64_t step) {
  const fs::path replaced = checkpoints / replaced_name(step);
  const fs::path name = checkpoints / checkpoint_name(step);
  if (!is_own_directory(replaced)) {
    return;
  }
  if (has_entry(name)) {
    remove_made_files(replaced, checkpoint_directory(), name);
  } else if (!rename_directory(replaced, name)) {
    fail(replaced);
  }
}

// What replace_symlink() leaves when it is killed: "latest.tmp.123".
bool is_temporary_link(const fs::path& path) {
  const std::string name = path.filename().string();
  const std::string_view link = without_mark(name);
  return link != name && (link == kLatestLink || link == kBestLink) && is_link(path);
}

}  // namespace

const DirectoryKind& checkpoint_directory() {
  static const DirectoryKind kKind = [] {
    DirectoryKind kind{
        .manifest = kManifestFile,
        .files = {kModelFile, kOptimizerFile, kAverageFile, kStateFile, kConfigFile, kUnigramFile}};
    kind.files.insert(kind.files.end(), kTokenizerFiles.begin(), kTokenizerFiles.end());
    return kind;
  }();
  return kKind;
}

bool remove_made_files(const fs::path& directory, const DirectoryKind& kind, const fs::path& heir) {
  return remove_files(directory, contents_of(directory, kind).files, heir);
}

void remove_checkpoint(const fs::path& checkpoints, std::int64_t step) {
  const fs::path name = checkpoints / checkpoint_name(step);
  const fs::path temporary = checkpoints / temporary_name(step);
  const Contents contents = contents_of(name, checkpoint_directory());
  if (contents.is_newer) {
    throw WriteError(name.string() + ": is not removed: a newer transnormer wrote it");
  }
  if (!rename_directory(name, temporary)) {
    fail(name);
  }
  if (!remove_files(temporary, contents.files, {})) {
    rename_directory(temporary, name);
    throw WriteError(name.string() +
                     ": is removed but for files that are not the program's, which stay there");
  }
}

void clean_checkpoints(const fs::path& checkpoints) {
  for (const fs::path& path : entries_of(checkpoints)) {
    const std::string name = path.filename().string();
    if (const auto replaced = replaced_step(name)) {
      put_back_or_remove(checkpoints, *replaced);
    } else if (const auto temporary = temporary_step(name)) {
      remove_temporary(path, checkpoints / checkpoint_name(*temporary));
    } else if (is_temporary_link(path)) {
      unlink_entry(path);
    }
  }
}

void clean_run_files(const fs::path& run_dir) {
  constexpr std::array<std::string_view, 2> kRewritten{kConfigFile, kMetricsFile};
  for (const fs::path& path : entries_of(run_dir)) {
    const std::string name = path.filename().string();
    const std::string_view file = without_mark(name);
    std::error_code none;
    if (file != name && std::ranges::find(kRewritten, file) != kRewritten.end() &&
        fs::is_regular_file(fs::symlink_status(path, none))) {
      unlink_entry(path);
    }
  }
}

}  // namespace transnormer
