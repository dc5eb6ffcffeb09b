#include "data/token_stream.h"

#include <array>
#include <cstddef>
#include <cstring>
#include <mutex>
#include <utility>

#include "data/text_files.h"
#include "util/error.h"
#include "util/hash.h"
#include "util/units.h"

namespace transnormer {
namespace {

// Bytes that are read in one go, on the stack.
constexpr std::size_t kStretchBytes = 16384;

// Widens tokens as they stand in a file; gives the largest, as without a sign.
template <typename Stored>
std::uint64_t widen(const std::byte* from, std::int64_t count, std::int64_t* out) {
  std::uint64_t largest = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    Stored token;
    std::memcpy(&token, from + static_cast<std::size_t>(i) * sizeof token, sizeof token);
    out[i] = token;
    largest = std::max(largest, std::uint64_t{token});
  }
  return largest;
}

}  // namespace

class TokenStream::File {
 public:
  explicit File(Payload payload)
      : payload_(std::move(payload)), verified_ns_(identify(payload_.file).modified_ns) {}

  void copy(std::int64_t begin, std::int64_t count, std::int64_t* out) {
    const std::int64_t most = static_cast<std::int64_t>(kStretchBytes) / payload_.width;
    for (; count > 0; begin += most, out += most, count -= most) {
      read_part(begin, std::min(count, most), out);
    }
    check_unwritten();
  }

 private:
  void read_part(std::int64_t begin, std::int64_t count, std::int64_t* out) const {
    alignas(8) std::array<std::byte, kStretchBytes> bytes;
    payload_.file.read_at(payload_.offset + begin * payload_.width, bytes.data(),
                          static_cast<std::size_t>(count * payload_.width));
    const std::uint64_t largest = payload_.width == 2
                                      ? widen<std::uint16_t>(bytes.data(), count, out)
                                      : widen<std::uint32_t>(bytes.data(), count, out);
    if (largest >= static_cast<std::uint64_t>(payload_.vocab_size)) {
      throw UserError(name() + ": was damaged while it was in use: it holds the token " +
                      std::to_string(largest) + ", and the vocabulary has " +
                      format_count(payload_.vocab_size));
    }
  }

  // A file that was written to since its digest was checked may hold other tokens now, or have been
  // touched only.
  void check_unwritten() {
    const std::int64_t modified_ns = identify(payload_.file).modified_ns;
    const std::lock_guard lock(mutex_);
    if (modified_ns == verified_ns_) {
      return;
    }
    if (payload_digest() != payload_.payload_digest) {
      throw UserError(name() +
                      ": was overwritten while it was in use; run again, and it is built "
                      "anew");
    }
    verified_ns_ = modified_ns;
  }

  [[nodiscard]] std::string payload_digest() const {
    Sha256 hash;
    std::vector<char> piece(std::size_t{1} << 20);
    std::int64_t left = payload_.count * payload_.width;
    for (std::int64_t at = payload_.offset; left > 0; at += std::ssize(piece)) {
      piece.resize(static_cast<std::size_t>(std::min(std::ssize(piece), left)));
      payload_.file.read_at(at, piece.data(), piece.size());
      hash.update(piece.data(), piece.size());
      left -= std::ssize(piece);
    }
    return hash.hex();
  }

  [[nodiscard]] std::string name() const { return payload_.file.path().string(); }

  const Payload payload_;
  std::mutex mutex_;
  std::int64_t verified_ns_;  // when the file was last written to as its digest was checked
};

TokenStream::TokenStream(std::vector<TokenId> tokens)
    : held_(std::make_shared<const std::vector<TokenId>>(std::move(tokens))),
      size_(std::ssize(*held_)),
      digest_(
          sha256({reinterpret_cast<const char*>(held_->data()), held_->size() * sizeof(TokenId)})) {
}

TokenStream::TokenStream(Payload payload) : size_(payload.count), digest_(payload.content_digest) {
  file_ = std::make_shared<File>(std::move(payload));
}

TokenId TokenStream::operator[](std::int64_t index) const {
  std::int64_t token = 0;
  copy(index, 1, &token);
  return static_cast<TokenId>(token);
}

void TokenStream::copy(std::int64_t begin, std::int64_t count, std::int64_t* out) const {
  if (file_) {
    file_->copy(begin, count, out);
  } else if (held_) {
    std::copy_n(held_->data() + begin, count, out);
  }
}

}  // namespace transnormer
