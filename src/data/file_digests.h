// SHA-256 digests of files that are not computed anew while a file is unchanged. Remembered in
// index.json of the cache directory, a convenience: losing it, or being unable to write it, costs
// time only.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "data/text_files.h"

namespace transnormer {

class FileDigests {
 public:
  FileDigests() = default;  // knows nothing and remembers nothing
  explicit FileDigests(const std::filesystem::path& cache_dir);

  // Digest of the file's bytes from `offset` on. Reads it in pieces, and throws StoppedError
  // between them when a signal asks to stop.
  [[nodiscard]] std::string digest(const InputFile& file, std::int64_t offset = 0);

  // One digest for the content of several files, in their order.
  [[nodiscard]] std::string digest(const std::vector<std::filesystem::path>& files);

  // Writes what was learned, where the cache directory exists and allows it, and no other process
  // writes to it. An index.json of somebody else is left alone. Never throws.
  void save();

 private:
  struct Entry {
    FileIdentity identity;
    std::int64_t offset = 0;
    std::string digest;
  };

  void read_index();
  void write_index();

  std::filesystem::path index_;
  std::map<std::string, Entry> entries_;  // by absolute path
  bool changed_ = false;
  bool is_ours_ = true;  // what stands under the index's name, if anything
};

}  // namespace transnormer
