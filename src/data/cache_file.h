// The text cache: the tokens of one split in one file, which says what it was made from.
//
//   1024 bytes  header: magic, format version, token width (2 or 4 bytes), counts and findings,
//               digests of the tokenizer, the source, the tokens and the payload, and of the header
//   then        the tokens, little-endian
//
// It is written to a temporary name and renamed, so a file under a cache's name is whole, or was
// damaged later, which the digests tell.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "config/config.h"
#include "data/file_digests.h"
#include "data/holdout.h"
#include "data/split_counts.h"
#include "data/token_stream.h"
#include "util/file.h"
#include "util/hash.h"

namespace transnormer {

// What the tokens are a function of.
struct CacheKey {
  std::string tokenizer_digest;
  std::string source_digest;
  LineEnd line_end = LineEnd::eos;
  bool strip_cr = false;
  Holdout part = {};
  bool operator==(const CacheKey&) const = default;

  // The file's name in the cache directory.
  [[nodiscard]] std::string file_name(const std::string& split) const;
};

struct CacheInfo {
  std::uint32_t version = 0;
  int token_width = 0;  // bytes
  std::int64_t vocab_size = 0;
  SplitCounts counts;
  CacheKey key;
  std::string content_digest;  // SHA-256 of the tokens as 32 bits each, TokenStream::digest()
  std::string payload_digest;  // SHA-256 of the tokens as they stand in the file
};

// True where the file starts as caches of any version do.
[[nodiscard]] bool is_cache_file(const std::filesystem::path& path);

// What a cache holds, all of it verified. Throws UserError for a file that is no cache, of another
// version, cut or damaged.
[[nodiscard]] CacheInfo read_cache_info(const std::filesystem::path& path);

struct OpenedCache {
  CacheInfo info;
  TokenStream stream;
};

// The same for use: the payload is verified unless `digests` knows the file. Throws UserError also
// where the cache was made from something else than `key`.
[[nodiscard]] OpenedCache open_cache(const std::filesystem::path& path, const CacheKey& key,
                                     FileDigests& digests);

// Writes a cache piece by piece. Failures throw WriteError; unless finished, nothing remains.
class CacheWriter {
 public:
  CacheWriter(const std::filesystem::path& path, CacheKey key, std::int64_t vocab_size);

  void append(std::span<const TokenId> tokens);
  // The file appears under its name.
  void finish(const SplitCounts& counts);

 private:
  CacheKey key_;
  std::int64_t vocab_size_;
  FileWriter file_;
  Sha256 content_;
  Sha256 payload_;  // where it differs from the content: 16-bit tokens
  std::vector<std::uint16_t> narrow_;
};

}  // namespace transnormer
