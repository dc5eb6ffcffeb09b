#include "data/token_stream.h"

#include <algorithm>
#include <utility>

#include "util/hash.h"

namespace transnormer {

TokenStream::TokenStream(std::vector<TokenId> tokens) {
  const auto owned = std::make_shared<const std::vector<TokenId>>(std::move(tokens));
  payload_ = owned->data();
  size_ = static_cast<std::int64_t>(owned->size());
  digest_ = sha256({reinterpret_cast<const char*>(owned->data()), owned->size() * sizeof(TokenId)});
  owner_ = owned;
}

TokenStream::TokenStream(std::shared_ptr<const void> owner, const void* payload, int width,
                         std::int64_t size)
    : owner_(std::move(owner)), payload_(payload), width_(width), size_(size) {}

TokenId TokenStream::operator[](std::int64_t index) const {
  return width_ == 2 ? static_cast<const std::uint16_t*>(payload_)[index]
                     : static_cast<const TokenId*>(payload_)[index];
}

void TokenStream::copy(std::int64_t begin, std::int64_t count, std::int64_t* out) const {
  if (width_ == 2) {
    std::copy_n(static_cast<const std::uint16_t*>(payload_) + begin, count, out);
  } else {
    std::copy_n(static_cast<const TokenId*>(payload_) + begin, count, out);
  }
}

}  // namespace transnormer
