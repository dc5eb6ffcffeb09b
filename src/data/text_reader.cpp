#include "data/text_reader.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string_view>
#include <utility>

#include "util/error.h"
#include "util/units.h"

namespace transnormer {

TextReader::TextReader(std::vector<std::filesystem::path> files, std::size_t chunk_bytes)
    : files_(std::move(files)), chunk_bytes_(chunk_bytes) {}

TextReader::~TextReader() {
  close();
}

bool TextReader::next(TextChunk& chunk) {
  chunk.text = std::exchange(rest_, {});
  while (file_ < files_.size()) {
    if (descriptor_ < 0) {
      open();
    }
    const std::size_t known = chunk.text.size();
    if (!fill(chunk.text)) {
      close();
      ++file_;
      if (chunk.text.empty()) {
        continue;
      }
      break;
    }
    // Only what came now can hold the last line end; what was there before is part of one line.
    const std::size_t end = std::string_view(chunk.text).substr(known).rfind('\n');
    if (end != std::string_view::npos) {
      rest_ = chunk.text.substr(known + end + 1);
      chunk.text.resize(known + end + 1);
      break;
    }
  }
  chunk.number = next_number_++;
  return !chunk.text.empty();
}

void TextReader::open() {
  descriptor_ = ::open(file().c_str(), O_RDONLY | O_CLOEXEC);
  file_bytes_read_ = 0;
  if (descriptor_ < 0) {
    throw UserError(file().string() + ": cannot be read: " + std::strerror(errno));
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
    throw UserError(file().string() + ": cannot be read: " + std::strerror(errno));
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
  saw_carriage_return_ = saw_carriage_return_ || std::memchr(data, '\r', size) != nullptr;
}

}  // namespace transnormer
