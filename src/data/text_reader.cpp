#include "data/text_reader.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string_view>
#include <utility>

#include "tokenizer/gpt2_pattern.h"
#include "tokenizer/plain_text.h"
#include "util/error.h"
#include "util/signal.h"
#include "util/units.h"

namespace transnormer {

TextReader::TextReader(TextSource source, std::size_t chunk_bytes, TextCut cut)
    : source_(std::move(source)), chunk_bytes_(chunk_bytes), cut_(cut) {}

TextReader::~TextReader() {
  close();
}

bool TextReader::next(TextChunk& chunk) {
  bool starts_file = false;
  while (take_lines(chunk)) {
    starts_file = starts_file || at_file_start_;
    clean(chunk.text);
    if (!chunk.text.empty()) {
      chunk.continues_line = cut_ == TextCut::white_space && !starts_file;
      chunk.number = next_number_++;
      return true;
    }
  }
  return false;
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
    if (descriptor_ < 0) {
      open();
    }
    const std::size_t known = text.size();
    if (!fill(text)) {
      if (!text.empty()) {
        return true;  // no place to cut is left; the file's end is met once more
      }
      close();
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
  descriptor_ = ::open(file().c_str(), O_RDONLY | O_CLOEXEC);
  file_bytes_read_ = 0;
  file_lines_ = 0;
  at_file_start_ = true;
  if (descriptor_ < 0) {
    throw UserError(file().string() + ": cannot be read: " + system_reason(errno));
  }
}

void TextReader::close() {
  if (descriptor_ >= 0) {
    ::close(std::exchange(descriptor_, -1));
  }
}

// Appends the file's next bytes; false at its end.
bool TextReader::fill(std::string& text) {
  const std::size_t before = text.size();
  text.resize(before + chunk_bytes_);
  ssize_t got = -1;
  do {
    got = ::read(descriptor_, text.data() + before, chunk_bytes_);
  } while (got < 0 && errno == EINTR);
  if (got < 0) {
    throw UserError(file().string() + ": cannot be read: " + system_reason(errno));
  }
  text.resize(before + static_cast<std::size_t>(got));
  check_is_text(text.data() + before, static_cast<std::size_t>(got));
  bytes_read_ += got;
  file_bytes_read_ += got;
  return got > 0;
}

void TextReader::check_is_text(const char* data, std::size_t size) {
  if (const void* nul = std::memchr(data, '\0', size)) {
    const auto offset = file_bytes_read_ + (static_cast<const char*>(nul) - data);
    throw UserError(file().string() + ": is not text: a NUL byte at offset " +
                    format_count(offset) + "; expected plain UTF-8 text");
  }
}

// Takes out of the lines what is no text, and notes what should not be there.
void TextReader::clean(std::string& text) {
  if (std::exchange(at_file_start_, false)) {
    text.erase(0, text.size() - without_byte_order_mark(text).size());
  }
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
