// Writes a directory of files so that it is whole or absent. Internal to src/checkpoint.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/manifest.h"
#include "checkpoint/removal.h"
#include "model/weights.h"

namespace transnormer {

// Makes a directory in one that is there. Throws WriteError.
void make_directory(const std::filesystem::path& path);

// The directory has another name while it is written; its files are removed unless it got its own.
class DirectoryWriter {
 public:
  // Removes what a killed process left under the name `temporary`, and makes that directory. Throws
  // WriteError, as all here do.
  DirectoryWriter(std::filesystem::path temporary, const DirectoryKind& kind);
  ~DirectoryWriter();
  DirectoryWriter(const DirectoryWriter&) = delete;
  DirectoryWriter& operator=(const DirectoryWriter&) = delete;

  // Each file is flushed, and goes into the manifest.
  void write_tensors(const std::string& name, const std::vector<NamedTensor>& tensors);
  void write_bytes(const std::string& name, std::string_view bytes);
  // The last file; format, program and files of `manifest` are filled in here.
  void write_manifest(Manifest manifest);

  // Gives the directory its name. Where a directory has it, the two change places, and what the
  // manifest of the old one lists is removed; what others put there moves to the new one. File
  // systems that cannot do that in one step get a moment in which the old one stands `aside`.
  void take_name(const std::filesystem::path& target, const std::filesystem::path& aside);

 private:
  std::filesystem::path path_;
  std::filesystem::path heir_;  // what others put into path_ goes there
  DirectoryKind kind_;
  std::map<std::string, ManifestFile> files_;
};

}  // namespace transnormer
