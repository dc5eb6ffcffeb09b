// A text cache: as it is, and with digests that fit, behind which nothing else would be looked at.
#include <cstdint>
#include <string>
#include <string_view>

#include "config/json_tree.h"
#include "data/cache_file.h"
#include "fuzz/fuzzer.h"
#include "util/hash.h"

namespace {

namespace fuzz = transnormer::fuzz;
using transnormer::CacheInfo;

constexpr std::size_t kHeader = 1024;
constexpr std::size_t kDigest = 64;
constexpr std::size_t kReserved = 328;

// The header ends with the digest of the payload, reserved bytes, and the digest of all of these.
std::string sealed(std::string bytes) {
  if (bytes.size() < kHeader) {
    return bytes;
  }
  const std::size_t of_header = kHeader - kDigest;
  const std::size_t of_payload = of_header - kReserved - kDigest;
  bytes.replace(of_payload, kDigest, transnormer::sha256(std::string_view(bytes).substr(kHeader)));
  return bytes.replace(of_header, kDigest,
                       transnormer::sha256(std::string_view(bytes).substr(0, of_header)));
}

void check(const std::filesystem::path& file, const CacheInfo& info) {
  for (const std::string& digest :
       {info.key.tokenizer_digest, info.key.source_digest, info.content_digest}) {
    fuzz::require(transnormer::is_utf8(digest), "a digest can be told as JSON");
  }
  fuzz::require(!info.key.file_name("train").empty(), "a key has a file");
  transnormer::FileDigests digests;
  const auto opened = transnormer::open_cache(file, info.key, digests);
  fuzz::require(opened.stream.size() == info.counts.tokens, "all tokens are there");
  fuzz::reads([&] {
    opened.stream.for_each([&](transnormer::TokenId token) {
      fuzz::require(token >= 0 && token < info.vocab_size, "a token is one of the vocabulary");
    });
  });
}

void read(std::string_view bytes) {
  const auto file = fuzz::put("cache.tokens", bytes);
  fuzz::reads([&] { static_cast<void>(transnormer::is_cache_file(file)); });
  CacheInfo info;
  if (fuzz::reads([&] { info = transnormer::read_cache_info(file); })) {
    check(file, info);
  }
}

}  // namespace

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string bytes(fuzz::bytes_of(data, size));
  read(bytes);
  read(sealed(bytes));
  return 0;
}
