// What a start makes before it is sure that it will go on. Internal to src/checkpoint.
#pragma once

#include <filesystem>
#include <vector>

namespace transnormer {

// Remembers the directories and files that were made through it, and removes them again unless they
// are kept: each by itself, and directories only where nothing else came into them meanwhile.
class NewEntries {
 public:
  NewEntries() = default;
  ~NewEntries() { remove(); }
  NewEntries(NewEntries&& other) noexcept;
  NewEntries& operator=(NewEntries&&) = delete;

  // Makes the directory, and those above it, where missing. Throws WriteError.
  void make_directories(const std::filesystem::path& directory);
  // A file that was made.
  void add_file(const std::filesystem::path& file);
  void keep();
  void remove();

 private:
  std::vector<std::filesystem::path> directories_;  // those above come first
  std::vector<std::filesystem::path> files_;
};

}  // namespace transnormer
