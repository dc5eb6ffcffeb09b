// A sequence of token ids: those of an open cache file, or held in memory.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "tokenizer/tokenizer.h"
#include "util/input_file.h"

namespace transnormer {

// Cheap to copy; the storage is shared, and any number of threads may read. Tokens in a file are
// read when they are asked for. Where the file was cut or overwritten since it was opened, so that
// they are no longer those that stood there, reading throws UserError.
class TokenStream {
 public:
  TokenStream() = default;
  explicit TokenStream(std::vector<TokenId> tokens);
  // `count` tokens from `offset` on, `width` bytes each (2 or 4), all below `vocab_size`. The bytes
  // have the digest `payload_digest`: who makes the stream has checked it.
  struct Payload {
    InputFile file;
    std::int64_t offset = 0;
    int width = 4;
    std::int64_t count = 0;
    std::int64_t vocab_size = 0;
    std::string payload_digest;
    std::string content_digest;  // digest()
  };
  explicit TokenStream(Payload payload);

  [[nodiscard]] std::int64_t size() const { return size_; }
  // One token; in a file each costs a call of the system.
  [[nodiscard]] TokenId operator[](std::int64_t index) const;
  // Widens tokens [begin, begin + count) to 64 bits.
  void copy(std::int64_t begin, std::int64_t count, std::int64_t* out) const;
  // Calls `each` with every token in turn.
  template <typename Each>
  void for_each(const Each& each) const;
  // SHA-256 of the tokens as 32-bit little-endian, whatever the width (identity of the content).
  [[nodiscard]] const std::string& digest() const { return digest_; }

 private:
  class File;

  std::shared_ptr<const std::vector<TokenId>> held_;
  std::shared_ptr<File> file_;  // where they are not held
  std::int64_t size_ = 0;
  std::string digest_;
};

template <typename Each>
void TokenStream::for_each(const Each& each) const {
  constexpr std::int64_t kPiece = std::int64_t{1} << 15;
  std::vector<std::int64_t> piece(static_cast<std::size_t>(std::min(kPiece, size_)));
  for (std::int64_t begin = 0; begin < size_; begin += kPiece) {
    const std::int64_t count = std::min(kPiece, size_ - begin);
    copy(begin, count, piece.data());
    for (const std::int64_t token : std::span(piece).first(static_cast<std::size_t>(count))) {
      each(static_cast<TokenId>(token));
    }
  }
}

}  // namespace transnormer
