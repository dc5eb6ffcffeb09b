// Reads text files one after another, in pieces of whole lines.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace transnormer {

// Lines end at '\n' only. A file's last line may lack it: the line ends with the file.
struct TextChunk {
  std::int64_t number = 0;  // 0, 1, 2 ..
  std::string text;
};

class TextReader {
 public:
  explicit TextReader(std::vector<std::filesystem::path> files,
                      std::size_t chunk_bytes = std::size_t{1} << 20);
  ~TextReader();
  TextReader(const TextReader&) = delete;
  TextReader& operator=(const TextReader&) = delete;

  // Replaces the chunk by the next one, about `chunk_bytes` long (longer where a line is). False at
  // the end. Throws UserError for a file that cannot be read or that is no text (holds NUL bytes).
  bool next(TextChunk& chunk);

  [[nodiscard]] std::int64_t bytes_read() const { return bytes_read_; }
  // Whether a carriage return came by: a sign of line ends that are not ours.
  [[nodiscard]] bool saw_carriage_return() const { return saw_carriage_return_; }

 private:
  [[nodiscard]] const std::filesystem::path& file() const { return files_[file_]; }
  void open();
  void close();
  bool fill(std::string& text);
  void check_is_text(const char* data, std::size_t size);

  std::vector<std::filesystem::path> files_;
  std::size_t chunk_bytes_;
  std::size_t file_ = 0;
  int descriptor_ = -1;
  std::string rest_;  // the start of a line whose end is not read yet
  std::int64_t next_number_ = 0;
  std::int64_t bytes_read_ = 0;
  std::int64_t file_bytes_read_ = 0;
  bool saw_carriage_return_ = false;
};

}  // namespace transnormer
