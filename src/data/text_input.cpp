#include "data/text_input.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>

#include "util/error.h"
#include "util/file.h"
#include "util/signal.h"
#include "util/units.h"

namespace transnormer {
namespace {

constexpr std::size_t kPiece = std::size_t{1} << 18;  // that is decoded at once

// A signal may ask to stop while this waits for a pipe.
int open_to_read(const std::filesystem::path& path) {
  int descriptor = -1;
  do {
    throw_if_stopped();
    descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  } while (descriptor < 0 && errno == EINTR);
  return descriptor;
}

}  // namespace

std::string text_name(const std::filesystem::path& path) {
  return path == kStandardInput ? "standard input" : path.string();
}

bool is_read_once(const std::filesystem::path& path) {
  std::error_code unknown;
  const std::filesystem::file_status status = std::filesystem::status(path, unknown);
  return path == kStandardInput || std::filesystem::is_other(status);
}

TextInput::TextInput(const std::filesystem::path& path) : path_(path) {
  descriptor_ = path == kStandardInput ? STDIN_FILENO : open_to_read(path);
  if (descriptor_ < 0) {
    fail(errno);
  }
  try {
    look_at_beginning();
  } catch (...) {
    if (descriptor_ != STDIN_FILENO) {
      ::close(descriptor_);
    }
    throw;
  }
}

TextInput::~TextInput() {
  if (descriptor_ != STDIN_FILENO) {
    ::close(descriptor_);
  }
}

void TextInput::fail(int error_number) const {
  throw UserError(text_name(path_) + ": cannot be read: " + system_reason(error_number));
}

std::size_t TextInput::read_source(std::span<char> output) {
  ssize_t got = -1;
  while ((got = ::read(descriptor_, output.data(), output.size())) < 0) {
    if (errno != EINTR) {
      fail(errno);
    }
    throw_if_stopped();
  }
  source_bytes_ += got;
  at_end_ = got == 0;
  return static_cast<std::size_t>(got);
}

// A pipe may give fewer bytes than it takes to tell.
void TextInput::look_at_beginning() {
  buffer_.resize(kPiece);
  std::size_t held = 0;
  while (held < kMagicBytes && !at_end_) {
    held += read_source(std::span(buffer_).subspan(held));
  }
  unread_ = std::string_view(buffer_).substr(0, held);
  if (at_end_ && is_cut_magic(unread_, path_.native())) {
    throw UserError(text_name(path_) + ": is cut off: it ends after " + format_count(held) +
                    (held == 1 ? " byte" : " bytes") +
                    " of compressed data; fetch or make it again");
  }
  if (const Compression kind = compression_of(unread_); kind != Compression::none) {
    decompressor_.emplace(kind, text_name(path_));
  }
}

std::size_t TextInput::read(std::span<char> output) {
  if (decompressor_) {
    return decode(output);
  }
  if (unread_.empty()) {
    return at_end_ ? 0 : read_source(output);
  }
  const std::size_t size = std::min(output.size(), unread_.size());
  std::copy_n(unread_.begin(), size, output.begin());
  unread_.remove_prefix(size);
  return size;
}

std::size_t TextInput::decode(std::span<char> output) {
  while (true) {
    const std::size_t filled = decompressor_->decode(unread_, at_end_, output);
    if (filled > 0 || at_end_) {
      return filled;
    }
    throw_if_stopped();
    unread_ = std::string_view(buffer_).substr(0, read_source(buffer_));
  }
}

std::string read_text(const std::filesystem::path& path) {
  TextInput input(path);
  std::string text;
  std::string piece(kPiece, '\0');
  while (const std::size_t size = input.read(piece)) {
    text.append(piece, 0, size);
    if (const std::size_t nul = text.find('\0', text.size() - size); nul != std::string::npos) {
      throw UserError(text_name(path) + ": is not text: a NUL byte at offset " +
                      format_count(static_cast<std::int64_t>(nul)) + "; expected plain UTF-8 text");
    }
    if (std::ssize(text) > kLargestWholeFile) {
      throw UserError(text_name(path) + ": is longer than " +
                      format_bytes(static_cast<double>(kLargestWholeFile)) +
                      "; expected a shorter text");
    }
  }
  return text;
}

}  // namespace transnormer
