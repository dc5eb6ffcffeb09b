// A sequence of token ids: a mapped cache file, or held in memory.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "tokenizer/tokenizer.h"

namespace transnormer {

// Cheap to copy; the storage is shared and immutable.
class TokenStream {
 public:
  TokenStream() = default;
  explicit TokenStream(std::vector<TokenId> tokens);
  // The payload of an opened cache, `width` bytes a token (2 or 4), kept alive by `owner`.
  TokenStream(std::shared_ptr<const void> owner, const void* payload, int width, std::int64_t size);

  [[nodiscard]] std::int64_t size() const { return size_; }
  [[nodiscard]] TokenId operator[](std::int64_t index) const;
  // Widens tokens [begin, begin + count) to 64 bits.
  void copy(std::int64_t begin, std::int64_t count, std::int64_t* out) const;
  // SHA-256 of the tokens as 32-bit little-endian, whatever the width (identity of the content).
  [[nodiscard]] const std::string& digest() const { return digest_; }
  void set_digest(std::string digest) { digest_ = std::move(digest); }

 private:
  std::shared_ptr<const void> owner_;
  const void* payload_ = nullptr;
  int width_ = 4;
  std::int64_t size_ = 0;
  std::string digest_;
};

}  // namespace transnormer
