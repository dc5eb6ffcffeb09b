#include "data/cache_file.h"

#include <algorithm>
#include <array>
#include <bit>
#include <limits>
#include <utility>

#include "config/names.h"
#include "tokenizer/utf8.h"
#include "util/error.h"

namespace transnormer {
namespace {

static_assert(std::endian::native == std::endian::little, "caches are little-endian");

constexpr std::array<char, 8> kMagic{'T', 'N', 'T', 'O', 'K', 'E', 'N', 'S'};
constexpr std::uint32_t kVersion = 2;
constexpr std::size_t kHeaderBytes = 1024;

// Bytes that hold each token of a vocabulary.
constexpr std::uint32_t width_for(std::int64_t vocab_size) {
  return vocab_size <= 65536 ? 2 : 4;
}

using Digest = std::array<char, 64>;

struct Word {
  std::int64_t count = 0;
  std::array<char, 40> text{};  // filled with zeros
};

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
  std::int64_t line_end = 0;
  std::int64_t strip_cr = 0;
  std::int64_t carriage_returns = 0;
  std::int64_t dropped_carriage_returns = 0;
  std::int64_t invalid_bytes = 0;
  std::int64_t invalid_file = 0;
  std::int64_t invalid_line = 0;
  std::int64_t unreadable = 0;
  std::array<Word, kCommonUnknown> common_unknown{};
  Digest tokenizer{};
  Digest source{};
  Digest content{};
  Digest payload{};
  double holdout = 0;
  std::int64_t is_held_out = 0;
  std::array<char, 312> reserved{};
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

std::string text(const Word& word) {
  return {word.text.data(), std::ranges::find(word.text, '\0')};
}

// The word, cut between characters where it is too long.
Word word_field(const UnknownWord& unknown) {
  Word word{.count = unknown.count};
  std::size_t size = std::min(unknown.word.size(), word.text.size());
  while (size > 0 && size < unknown.word.size() && continues_character(unknown.word[size])) {
    --size;
  }
  std::copy_n(unknown.word.begin(), size, word.text.begin());
  return word;
}

bool is_digest(const Digest& field) {
  return std::ranges::all_of(
      field, [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); });
}

bool is_in_range(const Header& h) {
  const std::array counts{h.tokens,
                          h.types,
                          h.unknown,
                          h.lines,
                          h.bytes,
                          h.words,
                          h.invalid_file,
                          h.invalid_line,
                          h.carriage_returns,
                          h.invalid_bytes,
                          h.dropped_carriage_returns};
  const auto is_negative = [](std::int64_t count) { return count < 0; };
  const auto last_reason = static_cast<std::int64_t>(Unreadable::uneven_spaces);
  return std::ranges::none_of(counts, is_negative) && h.vocab_size > 0 &&
         h.vocab_size <= std::numeric_limits<TokenId>::max() &&
         h.width == width_for(h.vocab_size) && h.line_end >= 0 &&
         h.line_end <= static_cast<std::int64_t>(LineEnd::keep) && h.strip_cr >= 0 &&
         h.strip_cr <= 1 && h.holdout >= 0 && h.holdout < 1 && h.is_held_out >= 0 &&
         h.is_held_out <= 1 && h.unreadable >= 0 && h.unreadable <= last_reason &&
         is_digest(h.tokenizer) && is_digest(h.source) && is_digest(h.content);
}

// The header, checked on its own and against the file's size.
Header read_header(const InputFile& file) {
  const std::string name = file.path().string();
  Header header;
  const std::int64_t present = std::min<std::int64_t>(file.size(), sizeof header);
  file.read_at(0, &header, static_cast<std::size_t>(present));
  if (present < 8 || header.magic != kMagic) {
    throw UserError(name + ": is not a text cache");
  }
  if (present >= 12 && header.version != kVersion) {
    throw UserError(name + ": is a text cache of version " + std::to_string(header.version) +
                    "; this program reads version " + std::to_string(kVersion));
  }
  if (present < static_cast<std::int64_t>(sizeof header)) {
    throw UserError(name + ": is cut off");
  }
  if (digest_of(header) != text(header.header)) {
    throw UserError(name + ": is damaged: its header does not match its digest");
  }
  if (!is_in_range(header)) {
    throw UserError(name + ": is damaged: its header holds figures that cannot be");
  }
  const std::int64_t payload = file.size() - present;
  if (payload / header.width != header.tokens || payload % header.width != 0) {
    throw UserError(name + ": is " +
                    (payload / header.width < header.tokens ? "cut off" : "damaged") + ": " +
                    std::to_string(payload) + " bytes of tokens where it says " +
                    std::to_string(header.tokens) + " tokens of " + std::to_string(header.width));
  }
  return header;
}

CacheInfo info_of(const Header& header) {
  CacheInfo info{
      .version = header.version,
      .token_width = static_cast<int>(header.width),
      .vocab_size = header.vocab_size,
      .counts = {.tokens = header.tokens,
                 .types = header.types,
                 .unknown = header.unknown,
                 .lines = header.lines,
                 .bytes = header.bytes,
                 .words = header.words,
                 .findings = {header.carriage_returns, header.dropped_carriage_returns,
                              header.invalid_bytes, header.invalid_file, header.invalid_line},
                 .unreadable = static_cast<Unreadable>(header.unreadable)},
      .key = {std::string(text(header.tokenizer)),
              std::string(text(header.source)),
              static_cast<LineEnd>(header.line_end),
              header.strip_cr != 0,
              {header.holdout, header.is_held_out != 0}},
      .content_digest = std::string(text(header.content)),
      .payload_digest = std::string(text(header.payload)),
  };
  for (const Word& word : header.common_unknown) {
    if (word.count > 0) {
      info.counts.common_unknown.push_back({text(word), word.count});
    }
  }
  return info;
}

CacheInfo verified_info(const InputFile& file, FileDigests& digests) {
  CacheInfo info = info_of(read_header(file));
  if (digests.digest(file, kHeaderBytes) != info.payload_digest) {
    throw UserError(file.path().string() + ": is damaged: its tokens do not match their digest");
  }
  return info;
}

}  // namespace

std::string CacheKey::file_name(const std::string& split) const {
  const std::string end = name_of<LineEnd>(kLineEndNames, line_end);
  const std::string digest =
      sha256(tokenizer_digest + '\n' + source_digest + '\n' + end + (strip_cr ? "\nstrip_cr" : "") +
             (part.splits() ? '\n' + part.name() : ""));
  return split + '-' + digest.substr(0, 32) + ".tokens";
}

bool is_cache_file(const std::filesystem::path& path) {
  const InputFile file(path);
  std::array<char, 8> magic{};
  if (file.size() < std::ssize(magic)) {
    return false;
  }
  file.read_at(0, magic.data(), magic.size());
  return magic == kMagic;
}

CacheInfo read_cache_info(const std::filesystem::path& path) {
  FileDigests fresh;
  return verified_info(InputFile(path), fresh);
}

OpenedCache open_cache(const std::filesystem::path& path, const CacheKey& key,
                       FileDigests& digests) {
  const InputFile file(path);
  OpenedCache cache{verified_info(file, digests), {}};
  const CacheInfo& info = cache.info;
  if (info.key != key) {
    throw UserError(path.string() + ": was made from another text or by another tokenizer");
  }
  cache.stream = TokenStream({.file = file,
                              .offset = kHeaderBytes,
                              .width = info.token_width,
                              .count = info.counts.tokens,
                              .vocab_size = info.vocab_size,
                              .payload_digest = info.payload_digest,
                              .content_digest = info.content_digest});
  return cache;
}

CacheWriter::CacheWriter(const std::filesystem::path& path, CacheKey key, std::int64_t vocab_size)
    : key_(std::move(key)), vocab_size_(vocab_size), file_(path) {
  const Header placeholder;
  file_.write(&placeholder, sizeof placeholder);
}

void CacheWriter::append(std::span<const TokenId> tokens) {
  content_.update(tokens.data(), tokens.size_bytes());
  if (width_for(vocab_size_) == 4) {
    file_.write(tokens.data(), tokens.size_bytes());
    return;
  }
  narrow_.assign(tokens.begin(), tokens.end());
  payload_.update(narrow_.data(), narrow_.size() * sizeof narrow_.front());
  file_.write(narrow_.data(), narrow_.size() * sizeof narrow_.front());
}

void CacheWriter::finish(const SplitCounts& counts) {
  const std::uint32_t width = width_for(vocab_size_);
  const TextFindings& findings = counts.findings;
  const std::string content = content_.hex();
  Header header{
      .magic = kMagic,
      .version = kVersion,
      .width = width,
      .vocab_size = vocab_size_,
      .tokens = counts.tokens,
      .types = counts.types,
      .unknown = counts.unknown,
      .lines = counts.lines,
      .bytes = counts.bytes,
      .words = counts.words,
      .line_end = static_cast<std::int64_t>(key_.line_end),
      .strip_cr = key_.strip_cr ? 1 : 0,
      .carriage_returns = findings.carriage_returns,
      .dropped_carriage_returns = findings.dropped_carriage_returns,
      .invalid_bytes = findings.invalid_bytes,
      .invalid_file = findings.invalid_file,
      .invalid_line = findings.invalid_line,
      .unreadable = static_cast<std::int64_t>(counts.unreadable),
      .tokenizer = digest_field(key_.tokenizer_digest),
      .source = digest_field(key_.source_digest),
      .content = digest_field(content),
      .payload = digest_field(width == 2 ? payload_.hex() : content),
      .holdout = key_.part.share,
      .is_held_out = key_.part.is_held_out ? 1 : 0,
  };
  std::ranges::transform(counts.common_unknown, header.common_unknown.begin(), word_field);
  header.header = digest_field(digest_of(header));
  file_.write_at(0, &header, sizeof header);
  file_.finish();
}

}  // namespace transnormer
