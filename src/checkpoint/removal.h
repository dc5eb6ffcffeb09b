// Removing what this program made, and nothing else: entry by entry, never a tree. Internal to
// src/checkpoint.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace transnormer {

// A kind of directory that this program writes: the name of its manifest, and of every other file
// that it may hold.
struct DirectoryKind {
  std::string manifest;
  std::vector<std::string> files;
};
[[nodiscard]] const DirectoryKind& checkpoint_directory();

// Removes from a directory the files that its manifest lists, those of its kind, and what a killed
// writer left of them; then the directory itself. What others put there stays, and then the
// directory does; where `heir` is given, a directory that is to go on under the same name, it moves
// there. Returns whether the directory is gone. Throws WriteError, UserError where the directory
// cannot be read.
bool remove_made_files(const std::filesystem::path& directory, const DirectoryKind& kind,
                       const std::filesystem::path& heir = {});

// Removes a checkpoint, in one step as far as others can see. A link to one goes as a link. Throws
// WriteError where it cannot be, where a newer program wrote it, and where it held what is not the
// program's: that stays under the checkpoint's name.
void remove_checkpoint(const std::filesystem::path& checkpoints, std::int64_t step);

// Puts right what a killed save or removal left: temporary directories and links of ours go, a
// checkpoint that was to be replaced gets its name back where nothing took its place. Throws
// WriteError, UserError where the directory cannot be read.
void clean_checkpoints(const std::filesystem::path& checkpoints);

// Removes what a killed writer left of the files beside the checkpoints: "config.json.tmp.17".
void clean_run_files(const std::filesystem::path& run_dir);

}  // namespace transnormer
