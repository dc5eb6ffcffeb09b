// A directory that the user names for what a command makes: an average, an export. It is whole or
// absent, and takes the place of an older one of its kind only.
#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <string>

#include "checkpoint/directory_writer.h"
#include "checkpoint/new_entries.h"

namespace transnormer {

struct WholeDirectoryKind {
  std::string noun;  // "an average"
  DirectoryKind files;
  // Whether a directory with this manifest is of the kind.
  std::function<bool(const Manifest&)> is_of_kind;
};

class WholeDirectory {
 public:
  // `given` is new, empty, or holds what an earlier call wrote there and nobody changed since;
  // files that others put beside those stay. Throws UserError where it is anything else, or lies
  // inside a run or a checkpoint, WriteError where it cannot be written. Until finish() nothing is
  // there.
  WholeDirectory(const std::filesystem::path& given, const WholeDirectoryKind& kind);

  [[nodiscard]] DirectoryWriter& writer() { return *writer_; }
  [[nodiscard]] const std::filesystem::path& path() const { return path_; }
  // Writes the manifest and gives the directory its name.
  void finish(Manifest manifest);

 private:
  std::filesystem::path path_;
  NewEntries parents_;
  std::optional<DirectoryWriter> writer_;
};

}  // namespace transnormer
