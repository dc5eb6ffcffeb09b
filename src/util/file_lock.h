// Exclusive advisory locks between processes.
#pragma once

#include <filesystem>
#include <optional>
#include <string_view>

namespace transnormer {

// A lock on a file, made where it is missing, held until destruction or death of the process. It
// may belong to another user: then being able to read it suffices. Where the file system knows no
// locks, it is held by nobody: see works().
class FileLock {
 public:
  // Returns nothing where another process holds the lock. Throws WriteError where the file can
  // neither be made nor opened.
  [[nodiscard]] static std::optional<FileLock> try_acquire(const std::filesystem::path& path);
  // Waits for the lock. Throws StoppedError when a signal asks to stop meanwhile.
  [[nodiscard]] static FileLock acquire(const std::filesystem::path& path);

  ~FileLock();
  FileLock(FileLock&& other) noexcept;
  FileLock& operator=(FileLock&& other) noexcept;

  // False where the file system has no locks: nothing then keeps other processes out.
  [[nodiscard]] bool works() const { return works_; }
  // Whether this call made the file.
  [[nodiscard]] bool made_file() const { return made_file_; }
  // Whether the locked file is still the one with this name: not removed, moved or replaced.
  [[nodiscard]] bool is_at(const std::filesystem::path& path) const;
  // Writes the number of a process into the file, for people, over a former one: not where it may
  // not be written, and not over anything else.
  void note(std::string_view text) const;

 private:
  FileLock(int descriptor, bool made_file) : descriptor_(descriptor), made_file_(made_file) {}
  [[nodiscard]] static FileLock open(const std::filesystem::path& path);
  // False where another process holds it.
  [[nodiscard]] bool lock(const std::filesystem::path& path);

  int descriptor_ = -1;
  bool made_file_ = false;
  bool works_ = true;
};

}  // namespace transnormer
