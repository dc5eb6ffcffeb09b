// Files that survive a crash: read whole, written whole or not at all.
// Failures to read throw UserError, failures to write WriteError, each naming the path and reason.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

namespace transnormer {

// For what is small by its nature. A file of more than `limit` bytes is refused: one without an end
// (a device, a pipe) would fill the memory.
inline constexpr std::int64_t kLargestWholeFile = std::int64_t{1} << 30;
[[nodiscard]] std::string read_file(const std::filesystem::path& path,
                                    std::int64_t limit = kLargestWholeFile);
// The same for regular files only: never waits, as a pipe would make it.
[[nodiscard]] std::string read_regular_file(const std::filesystem::path& path,
                                            std::int64_t limit = kLargestWholeFile);

// Writes and flushes to the disk, over what an existing file holds. Files are made for all whom the
// umask lets, here and below.
void write_file(const std::filesystem::path& path, std::string_view bytes);

// Readers see the old file or the new, as with a FileWriter.
void write_file_atomically(const std::filesystem::path& path, std::string_view bytes);

// Whether something has this name, be it a link that leads nowhere; whether it is a link.
[[nodiscard]] bool has_entry(const std::filesystem::path& path);
[[nodiscard]] bool is_link(const std::filesystem::path& path);

// Whether the open file is the one that has this name now: not removed, moved or replaced.
[[nodiscard]] bool is_open_at(int descriptor, const std::filesystem::path& path);

// Whether `file` is `directory`, or somewhere below it, as they are written.
[[nodiscard]] bool is_below(const std::filesystem::path& file,
                            const std::filesystem::path& directory);

// The place that a path leads to, links followed, "." and ".." gone, as far as it exists; what does
// not exist is taken by its name. Relative to the working directory where the given path is. Throws
// UserError where that cannot be told (a link that leads to itself, no permission).
[[nodiscard]] std::filesystem::path resolve_path(const std::filesystem::path& path);

// False where the file system cannot flush this file to the disk: a power cut may then lose what
// was written.
[[nodiscard]] bool can_flush(const std::filesystem::path& file);

// Flushes to the disk what was written to an open file; `name` stands in messages.
void sync_file(int descriptor, const std::filesystem::path& name);

// Flushes a directory's entries, so that a rename in it survives a power cut.
void sync_directory(const std::filesystem::path& directory);

// Gives those of stdin, stdout and stderr that the program was started without a place that can
// neither be read nor written, so that no file opened later is taken for one of them.
void reserve_standard_streams();

// Like std::filesystem::create_directories, but throws WriteError.
void make_directories(const std::filesystem::path& directory);

// Makes `link` point to `target` (a relative path), replacing a former link in one step. Throws
// WriteError also where something that is no link has its name, which stays.
void replace_symlink(const std::filesystem::path& target, const std::filesystem::path& link);

// A file written piece by piece under a temporary name beside it, which finish() flushes to the
// disk and renames; dropped without it, an older file stays as it was. Symbolic links are followed,
// not replaced. Devices, pipes and what /dev or /proc lead to (/dev/stdout) are written in place.
class FileWriter {
 public:
  explicit FileWriter(std::filesystem::path path);
  ~FileWriter();
  FileWriter(const FileWriter&) = delete;
  FileWriter& operator=(const FileWriter&) = delete;

  void write(const void* data, std::size_t size);
  void write_at(std::size_t offset, const void* data, std::size_t size);
  void finish();

 private:
  [[noreturn]] void fail(const std::string& why) const;

  std::filesystem::path path_;       // as it was given, for messages
  std::filesystem::path target_;     // what its links lead to
  std::filesystem::path temporary_;  // empty once renamed, or where written in place
  int descriptor_ = -1;
};

}  // namespace transnormer
