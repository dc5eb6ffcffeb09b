// Reads text files one after another, in pieces: of whole lines, or cut before white space.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "data/holdout.h"
#include "data/text_input.h"

namespace transnormer {

struct TextSource {
  std::vector<std::filesystem::path> files;  // "-" is standard input
  bool strip_cr = false;                     // data.strip_cr
  Holdout part = {};                         // which part of them
};

// What came by, in the part that is read, that a text should not hold.
struct TextFindings {
  std::int64_t carriage_returns = 0;          // kept
  std::int64_t dropped_carriage_returns = 0;  // at line ends, by strip_cr
  std::int64_t invalid_bytes = 0;             // that belong to no character of UTF-8
  std::int64_t invalid_file = 0;              // the first of them: number of the file,
  std::int64_t invalid_line = 0;              // and of the line in it, from 1
  bool operator==(const TextFindings&) const = default;
};

// Where a text may be cut into chunks.
enum class TextCut {
  line_ends,
  white_space,  // where byte-level BPE cuts too: last_gpt2_cut() in tokenizer/gpt2_pattern.h
};

// Lines end at '\n' only. A file's last line may lack it: the line ends with the file.
struct TextChunk {
  std::int64_t number = 0;  // 0, 1, 2 ..
  std::string text;
  bool continues_line = false;  // begins inside a line; both with TextCut::white_space only
  bool line_goes_on = false;    // its last line goes on in the next chunk
};

inline constexpr std::size_t kTextChunkBytes = std::size_t{1} << 20;

class TextReader {
 public:
  explicit TextReader(TextSource source, std::size_t chunk_bytes = kTextChunkBytes,
                      TextCut cut = TextCut::line_ends);
  ~TextReader();
  TextReader(const TextReader&) = delete;
  TextReader& operator=(const TextReader&) = delete;

  // Replaces the chunk by the next one, about `chunk_bytes` long (longer where a line is), of one
  // file and of the part that is wanted, without the byte order mark of its file and what strip_cr
  // drops. False at the end. Throws UserError for a file that cannot be read or that is no text
  // (holds NUL bytes), StoppedError when a signal asks to stop.
  bool next(TextChunk& chunk);

  // Of the files, as they are stored: for progress. May be asked while another thread reads.
  [[nodiscard]] std::int64_t source_bytes() const { return source_bytes_; }
  [[nodiscard]] const TextFindings& findings() const { return findings_; }

 private:
  [[nodiscard]] const std::filesystem::path& file() const { return source_.files[file_]; }
  void open();
  [[nodiscard]] std::size_t last_cut(std::string_view text, std::size_t known) const;
  bool take_lines(TextChunk& chunk);
  bool fill(std::string& text);
  void check_is_text(const char* data, std::size_t size);
  void drop_byte_order_mark(std::string& text);
  void part(const TextChunk& chunk, bool starts_file);
  void clean(std::string& text);

  TextSource source_;
  std::size_t chunk_bytes_;
  TextCut cut_;
  HoldoutRuns runs_;
  bool after_gap_ = true;         // what comes next does not go on what was kept
  std::deque<TextChunk> parted_;  // of a chunk in parts, what is not handed out yet
  std::size_t file_ = 0;
  std::unique_ptr<TextInput> input_;  // of the present file
  std::string rest_;                  // behind the last place to cut so far
  std::int64_t next_number_ = 0;
  std::atomic<std::int64_t> source_bytes_ = 0;
  std::int64_t file_source_bytes_ = 0;  // of the present file
  std::int64_t file_bytes_ = 0;         // of its text
  std::int64_t file_lines_ = 0;         // in what was taken of the file so far
  bool at_file_start_ = true;
  TextFindings findings_;
};

}  // namespace transnormer
