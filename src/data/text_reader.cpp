#include "data/text_reader.h"

#include <algorithm>
#include <cstring>
#include <span>
#include <string_view>
#include <utility>

#include "tokenizer/plain_text.h"
#include "util/error.h"
#include "util/signal.h"
#include "util/units.h"

namespace transnormer {

TextReader::TextReader(TextSource source, std::size_t chunk_bytes)
    : source_(std::move(source)), chunk_bytes_(chunk_bytes), runs_(source_.part) {}

TextReader::~TextReader() = default;

bool TextReader::next(TextChunk& chunk) {
  while (take_lines(chunk.text)) {
    drop_byte_order_mark(chunk.text);
    if (source_.part.splits()) {
      keep_part(chunk.text);
    } else {
      clean(chunk.text);
    }
    if (!chunk.text.empty()) {
      chunk.number = next_number_++;
      return true;
    }
  }
  return false;
}

// Replaces the text by whole lines of one file, as they stand there. False at the end.
bool TextReader::take_lines(std::string& text) {
  throw_if_stopped();
  text = std::exchange(rest_, {});
  while (file_ < source_.files.size()) {
    if (!input_) {
      open();
    }
    const std::size_t known = text.size();
    if (!fill(text)) {
      if (!text.empty()) {
        return true;  // the last line lacks its end; the file's end is met once more
      }
      input_.reset();
      ++file_;
      continue;
    }
    // Only what came now can hold the last line end; what was there before is part of one line.
    const std::size_t end = std::string_view(text).substr(known).rfind('\n');
    if (end != std::string_view::npos) {
      rest_ = text.substr(known + end + 1);
      text.resize(known + end + 1);
      return true;
    }
  }
  return false;
}

void TextReader::open() {
  input_ = std::make_unique<TextInput>(file());
  file_bytes_ = 0;
  file_source_bytes_ = 0;
  file_lines_ = 0;
  at_file_start_ = true;
}

// Appends the file's next bytes; false at its end.
bool TextReader::fill(std::string& text) {
  const std::size_t before = text.size();
  text.resize(before + chunk_bytes_);
  const std::size_t got = input_->read(std::span(text).subspan(before));
  source_bytes_ +=
      input_->source_bytes() - std::exchange(file_source_bytes_, input_->source_bytes());
  text.resize(before + got);
  check_is_text(text.data() + before, got);
  file_bytes_ += static_cast<std::int64_t>(got);
  return got > 0;
}

void TextReader::check_is_text(const char* data, std::size_t size) {
  if (const void* nul = std::memchr(data, '\0', size)) {
    const auto offset = file_bytes_ + (static_cast<const char*>(nul) - data);
    throw UserError(text_name(file()) + ": is not text: a NUL byte at offset " +
                    format_count(offset) + (input_->is_compressed() ? " of what it holds" : "") +
                    "; expected plain UTF-8 text");
  }
}

void TextReader::drop_byte_order_mark(std::string& text) {
  if (std::exchange(at_file_start_, false)) {
    text.erase(0, text.size() - without_byte_order_mark(text).size());
  }
}

void TextReader::keep_part(std::string& text) {
  std::string kept;
  runs_.split(text, [&](std::string_view piece, bool is_wanted) {
    if (is_wanted) {
      std::string lines(piece);
      clean(lines);
      kept += lines;
    } else {
      file_lines_ += count_byte(piece, '\n');
    }
  });
  text = std::move(kept);
}

// Takes out of the lines what is no text, and notes what should not be there.
void TextReader::clean(std::string& text) {
  if (source_.strip_cr) {
    findings_.dropped_carriage_returns += drop_carriage_returns(text);
  }
  findings_.carriage_returns += count_byte(text, '\r');
  const InvalidUtf8 invalid = find_invalid_utf8(text);
  if (invalid.bytes > 0 && findings_.invalid_bytes == 0) {
    findings_.invalid_file = static_cast<std::int64_t>(file_);
    findings_.invalid_line =
        file_lines_ + 1 + std::ranges::count(text.substr(0, invalid.first), '\n');
  }
  findings_.invalid_bytes += invalid.bytes;
  file_lines_ += count_byte(text, '\n');
}

}  // namespace transnormer
