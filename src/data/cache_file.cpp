#include "data/cache_file.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <memory>
#include <system_error>
#include <utility>

#include "util/error.h"

namespace transnormer {
namespace {

static_assert(std::endian::native == std::endian::little, "caches are little-endian");

constexpr std::array<char, 8> kMagic{'T', 'N', 'T', 'O', 'K', 'E', 'N', 'S'};
constexpr std::uint32_t kVersion = 1;
constexpr std::size_t kHeaderBytes = 512;
constexpr std::int64_t kNarrowVocabulary = 65536;  // up to here 16 bits hold a token

using Digest = std::array<char, 64>;

struct Header {
  std::array<char, 8> magic{};
  std::uint32_t version = 0;
  std::uint32_t width = 0;
  std::int64_t vocab_size = 0;
  std::int64_t tokens = 0;
  std::int64_t types = 0;
  std::int64_t unknown = 0;
  std::int64_t lines = 0;
  std::int64_t bytes = 0;
  std::int64_t words = 0;
  std::uint64_t line_end = 0;
  Digest tokenizer{};
  Digest source{};
  Digest content{};
  Digest payload{};
  std::array<char, 112> reserved{};
  Digest header{};  // of all that stands before
};
static_assert(sizeof(Header) == kHeaderBytes);

std::string_view text(const Digest& digest) {
  return {digest.data(), digest.size()};
}

Digest digest_field(const std::string& hex) {
  Digest digest{};
  std::copy_n(hex.begin(), std::min(hex.size(), digest.size()), digest.begin());
  return digest;
}

std::string digest_of(const Header& header) {
  return sha256({reinterpret_cast<const char*>(&header), offsetof(Header, header)});
}

// The header, checked on its own and against the file's size.
Header read_header(const std::filesystem::path& path) {
  std::ifstream stream(path, std::ios::binary);
  if (!stream) {
    throw UserError(path.string() + ": cannot be read");
  }
  Header header;
  stream.read(reinterpret_cast<char*>(&header), sizeof header);
  if (stream.gcount() < 8 || header.magic != kMagic) {
    throw UserError(path.string() + ": is not a text cache");
  }
  if (stream.gcount() >= 12 && header.version != kVersion) {
    throw UserError(path.string() + ": is a text cache of version " +
                    std::to_string(header.version) + "; this program reads version " +
                    std::to_string(kVersion));
  }
  if (stream.gcount() < static_cast<std::streamsize>(sizeof header)) {
    throw UserError(path.string() + ": is cut off");
  }
  if (digest_of(header) != text(header.header)) {
    throw UserError(path.string() + ": is damaged: its header does not match its digest");
  }
  const auto expected = kHeaderBytes + static_cast<std::uint64_t>(header.tokens) * header.width;
  std::error_code error;
  const auto size = std::filesystem::file_size(path, error);
  if (error) {
    throw UserError(path.string() + ": cannot be read: " + error.message());
  }
  if (size != expected) {
    throw UserError(path.string() + ": is " + (size < expected ? "cut off" : "damaged") + ": " +
                    std::to_string(size) + " bytes where " + std::to_string(expected) +
                    " are expected");
  }
  return header;
}

CacheInfo info_of(const Header& header) {
  return {
      .version = header.version,
      .token_width = static_cast<int>(header.width),
      .vocab_size = header.vocab_size,
      .counts = {header.tokens, header.types, header.unknown, header.lines, header.bytes,
                 header.words},
      .key = {std::string(text(header.tokenizer)), std::string(text(header.source)),
              static_cast<LineEnd>(header.line_end)},
      .content_digest = std::string(text(header.content)),
      .payload_digest = std::string(text(header.payload)),
  };
}

CacheInfo verified_info(const std::filesystem::path& path, FileDigests& digests) {
  CacheInfo info = info_of(read_header(path));
  if (digests.digest(path, kHeaderBytes) != info.payload_digest) {
    throw UserError(path.string() + ": is damaged: its tokens do not match their digest");
  }
  return info;
}

std::filesystem::path temporary_name(const std::filesystem::path& path) {
  return path.string() + ".tmp";
}

}  // namespace

std::string CacheKey::file_name(const std::string& split) const {
  const std::string end = line_end == LineEnd::eos ? "eos" : "none";
  const std::string digest = sha256(tokenizer_digest + '\n' + source_digest + '\n' + end);
  return split + '-' + digest.substr(0, 32) + ".tokens";
}

bool is_cache_file(const std::filesystem::path& path) {
  std::ifstream stream(path, std::ios::binary);
  std::array<char, 8> magic{};
  return stream.read(magic.data(), magic.size()) && magic == kMagic;
}

CacheInfo read_cache_info(const std::filesystem::path& path) {
  FileDigests fresh;
  return verified_info(path, fresh);
}

OpenedCache open_cache(const std::filesystem::path& path, const CacheKey& key,
                       FileDigests& digests) {
  OpenedCache cache{verified_info(path, digests), {}};
  if (cache.info.key != key) {
    throw UserError(path.string() + ": was made from another text or by another tokenizer");
  }
  const auto file = std::make_shared<const MappedFile>(path);
  cache.stream = TokenStream(file, file->data() + kHeaderBytes, cache.info.token_width,
                             cache.info.counts.tokens);
  cache.stream.set_digest(cache.info.content_digest);
  return cache;
}

CacheWriter::CacheWriter(const std::filesystem::path& path, CacheKey key, std::int64_t vocab_size)
    : path_(path), key_(std::move(key)), vocab_size_(vocab_size), file_(temporary_name(path)) {
  const Header placeholder;
  file_.write(&placeholder, sizeof placeholder);
}

void CacheWriter::append(std::span<const TokenId> tokens) {
  content_.update(tokens.data(), tokens.size_bytes());
  if (vocab_size_ > kNarrowVocabulary) {
    file_.write(tokens.data(), tokens.size_bytes());
    return;
  }
  narrow_.assign(tokens.begin(), tokens.end());
  payload_.update(narrow_.data(), narrow_.size() * sizeof narrow_.front());
  file_.write(narrow_.data(), narrow_.size() * sizeof narrow_.front());
}

void CacheWriter::finish(const SplitCounts& counts) {
  const bool narrow = vocab_size_ <= kNarrowVocabulary;
  const std::string content = content_.hex();
  Header header{
      .magic = kMagic,
      .version = kVersion,
      .width = narrow ? 2U : 4U,
      .vocab_size = vocab_size_,
      .tokens = counts.tokens,
      .types = counts.types,
      .unknown = counts.unknown,
      .lines = counts.lines,
      .bytes = counts.bytes,
      .words = counts.words,
      .line_end = static_cast<std::uint64_t>(key_.line_end),
      .tokenizer = digest_field(key_.tokenizer_digest),
      .source = digest_field(key_.source_digest),
      .content = digest_field(content),
      .payload = digest_field(narrow ? payload_.hex() : content),
  };
  header.header = digest_field(digest_of(header));
  file_.write_at(0, &header, sizeof header);
  file_.finish();
  std::error_code error;
  std::filesystem::rename(temporary_name(path_), path_, error);
  if (error) {
    const std::string why = error.message();
    std::filesystem::remove(temporary_name(path_), error);
    throw WriteError(path_.string() + ": cannot be written: " + why);
  }
  sync_directory(path_.parent_path());
}

}  // namespace transnormer
