// A file that is kept open to read any part of it, for as long as wanted.
#pragma once

#include <sys/stat.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

namespace transnormer {

// What is read comes from the file that was opened, whatever becomes of its name; a file that was
// cut since is an error, and not a signal as in mapped memory. Any number of threads may read.
// Cheap to copy: copies share the open file.
class InputFile {
 public:
  // Throws UserError where the path leads to no file that can be read.
  explicit InputFile(const std::filesystem::path& path);

  [[nodiscard]] const std::filesystem::path& path() const { return path_; }
  [[nodiscard]] std::int64_t size() const { return size_; }  // bytes, when it was opened
  [[nodiscard]] struct stat status() const;                  // of the open file, now

  // All of [offset, offset + size). Throws UserError where the file ends before, or cannot be read.
  void read_at(std::int64_t offset, void* data, std::size_t size) const;
  [[nodiscard]] std::string text() const;  // all of it
  // Calls `take` with the bytes from `offset` on, piece by piece. Throws StoppedError between them
  // when a signal asks to stop.
  void for_each_piece(std::int64_t offset, const std::function<void(std::string_view)>& take) const;

 private:
  std::filesystem::path path_;
  std::shared_ptr<const int> descriptor_;
  std::int64_t size_ = 0;
};

}  // namespace transnormer
