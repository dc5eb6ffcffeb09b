#include "data/text_reader.h"

#include <algorithm>
#include <cstring>
#include <span>
#include <string_view>
#include <utility>

#include "tokenizer/gpt2_pattern.h"
#include "tokenizer/plain_text.h"
#include "util/error.h"
#include "util/signal.h"
#include "util/units.h"

namespace transnormer {

TextReader::TextReader(TextSource source, std::size_t chunk_bytes, TextCut cut)
    : source_(std::move(source)), chunk_bytes_(chunk_bytes), cut_(cut), runs_(source_.part) {}

TextReader::~TextReader() = default;

bool TextReader::next(TextChunk& chunk) {
  bool starts_file = false;
  for (;;) {
    if (!parted_.empty()) {
      chunk = std::move(parted_.front());
      parted_.pop_front();
      chunk.number = next_number_++;
      return true;
    }
    if (!take_lines(chunk)) {
      return false;
    }
    starts_file = starts_file || at_file_start_;
    drop_byte_order_mark(chunk.text);
    chunk.continues_line = cut_ == TextCut::white_space && !starts_file;
    if (source_.part.splits()) {
      part(chunk, starts_file);
      starts_file = false;
      continue;
    }
    clean(chunk.text);
    if (!chunk.text.empty()) {
      chunk.number = next_number_++;
      return true;
    }
  }
}

// The last place where the text may be cut, npos where there is none. In its first `known` bytes
// there is none, but perhaps right behind them.
std::size_t TextReader::last_cut(std::string_view text, std::size_t known) const {
  if (cut_ == TextCut::white_space) {
    return last_gpt2_cut(text, known);
  }
  const std::size_t end = text.substr(known).rfind('\n');
  return end == std::string_view::npos ? end : known + end + 1;
}

// Replaces the text by a part of one file, as it stands there. False at the end.
bool TextReader::take_lines(TextChunk& chunk) {
  throw_if_stopped();
  std::string& text = chunk.text;
  text = std::exchange(rest_, {});
  chunk.line_goes_on = false;
  while (file_ < source_.files.size()) {
    if (!input_) {
      open();
    }
    const std::size_t known = text.size();
    if (!fill(text)) {
      if (!text.empty()) {
        return true;  // no place to cut is left; the file's end is met once more
      }
      input_.reset();
      ++file_;
      continue;
    }
    const std::size_t cut = last_cut(text, known);
    if (cut != std::string_view::npos) {
      rest_ = text.substr(cut);
      text.resize(cut);
      chunk.line_goes_on = cut_ == TextCut::white_space;
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

// Keeps the pieces of the part that is wanted. A text that may be cut before white space only is
// one up to a gap: then what stands behind it is a chunk of its own.
void TextReader::part(const TextChunk& chunk, bool starts_file) {
  if (starts_file) {
    runs_.end_line();
    after_gap_ = true;
  }
  bool begins_chunk = true;
  runs_.split(chunk.text, [&](std::string_view piece, bool is_wanted) {
    if (!is_wanted) {
      file_lines_ += count_byte(piece, '\n');
      after_gap_ = true;
    } else {
      const bool goes_on = !begins_chunk && (!after_gap_ || cut_ == TextCut::line_ends);
      if (!goes_on || parted_.empty()) {
        parted_.emplace_back();
        parted_.back().continues_line = chunk.continues_line && begins_chunk && !after_gap_;
      }
      std::string lines(piece);
      clean(lines);
      parted_.back().text += lines;
      after_gap_ = false;
    }
    begins_chunk = false;
  });
  if (!parted_.empty()) {
    parted_.back().line_goes_on = chunk.line_goes_on && !after_gap_;
  }
  std::erase_if(parted_, [](const TextChunk& kept) { return kept.text.empty(); });
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
