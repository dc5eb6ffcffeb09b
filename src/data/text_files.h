// Which files a split is made of.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "util/input_file.h"

namespace transnormer {

// The files that the entries (paths and globs) name: entries in their order, the matches of a glob
// sorted by bytes. A backslash takes a character by itself: "run\[1\]/part*". A file of just that
// name, with or without its backslashes, wins over reading the entry as a glob. `key`
// ("data.train") stands in messages. Throws UserError for a missing file, a directory, a pipe or
// standard input ("-"), an empty file set, or a glob that matches no file.
[[nodiscard]] std::vector<std::filesystem::path> find_text_files(
    const std::vector<std::string>& entries, const std::string& key);

// What is known of a file without reading it. Equal identities mean equal content, unless somebody
// sets the machine's clock back: any write moves the change time.
struct FileIdentity {
  std::int64_t size = 0;
  std::int64_t modified_ns = 0;
  std::int64_t changed_ns = 0;
  std::uint64_t inode = 0;
  bool operator==(const FileIdentity&) const = default;
};

// Throws UserError where the file is missing.
[[nodiscard]] FileIdentity identify(const std::filesystem::path& path);
[[nodiscard]] FileIdentity identify(const InputFile& file);
[[nodiscard]] std::vector<FileIdentity> identify(const std::vector<std::filesystem::path>& files);

// Throws UserError where a file is not what it was when it had this identity: what was made of a
// text must not be kept under the digest of another.
void check_unchanged(const std::vector<std::filesystem::path>& files,
                     const std::vector<FileIdentity>& before, const std::string& key);

}  // namespace transnormer
