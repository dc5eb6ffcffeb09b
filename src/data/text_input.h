// The bytes of one text: of a file, a pipe or standard input, compressed or not.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "util/compression.h"
#include "util/standard_input.h"

namespace transnormer {

// What a text goes by in messages.
[[nodiscard]] std::string text_name(const std::filesystem::path& path);

// Whether it can be read once only: standard input, a pipe, a terminal.
[[nodiscard]] bool is_read_once(const std::filesystem::path& path);

// Texts that gzip, xz or zstd wrote are told by how they begin, whatever their name, and read as
// what they hold. Memory does not grow with the text.
class TextInput {
 public:
  // Waits for the writer of a pipe. Throws UserError where the text cannot be read.
  explicit TextInput(const std::filesystem::path& path);
  ~TextInput();
  TextInput(const TextInput&) = delete;
  TextInput& operator=(const TextInput&) = delete;

  // Fills the front of `output`; 0 at the end only. Throws UserError for what cannot be read and
  // for compressed data that is cut, damaged or followed by something else; StoppedError where a
  // signal asks to stop while it waits for a pipe.
  [[nodiscard]] std::size_t read(std::span<char> output);

  [[nodiscard]] std::int64_t source_bytes() const { return source_bytes_; }  // read of the file
  [[nodiscard]] bool is_compressed() const { return decompressor_.has_value(); }

 private:
  [[nodiscard]] std::size_t read_source(std::span<char> output);
  void look_at_beginning();
  [[nodiscard]] std::size_t decode(std::span<char> output);
  [[noreturn]] void fail(int error_number) const;

  std::filesystem::path path_;
  int descriptor_ = -1;
  std::string buffer_;       // of the source
  std::string_view unread_;  // the part of it that is still to be given or decoded
  bool at_end_ = false;      // of the source
  std::int64_t source_bytes_ = 0;
  std::optional<Decompressor> decompressor_;
};

// All of a text that is small by its nature, as it stands there: a prompt. Throws UserError also
// for one that holds NUL bytes or is longer than a GiB.
[[nodiscard]] std::string read_text(const std::filesystem::path& path);

}  // namespace transnormer
