#include "tokenizer/tiktoken_file.h"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <optional>
#include <vector>

#include "config/json_tree.h"
#include "tokenizer/bpe_merger.h"
#include "util/error.h"

namespace transnormer {
namespace {

constexpr std::size_t kGroup = 4;  // letters of base64 for three bytes

int value_of(char letter) {
  constexpr std::string_view kLetters =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  const std::size_t at = kLetters.find(letter);
  return at == std::string_view::npos ? -1 : static_cast<int>(at);
}

// RFC 4648, padded; nothing where it is not that.
std::optional<std::string> from_base64(std::string_view text) {
  if (text.empty() || text.size() % kGroup != 0) {
    return std::nullopt;
  }
  const std::size_t padding = text.ends_with("==") ? 2 : text.ends_with('=') ? 1 : 0;
  std::string bytes;
  unsigned bits = 0;
  unsigned count = 0;
  for (const char letter : text.substr(0, text.size() - padding)) {
    const int value = value_of(letter);
    if (value < 0) {
      return std::nullopt;
    }
    bits = bits << 6 | static_cast<unsigned>(value);
    count += 6;
    if (count >= 8) {
      count -= 8;
      bytes += static_cast<char>(bits >> count);
      bits &= (1U << count) - 1;
    }
  }
  return bits == 0 ? std::optional(bytes) : std::nullopt;  // the bits left over must be 0
}

struct Line {
  std::string bytes;
  std::int64_t rank;
};

std::optional<Line> parse_line(std::string_view line) {
  const std::size_t space = line.find(' ');
  if (space == std::string_view::npos) {
    return std::nullopt;
  }
  const std::optional<std::string> bytes = from_base64(line.substr(0, space));
  const std::string_view digits = line.substr(space + 1);
  std::int64_t rank = -1;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), rank);
  if (!bytes || error != std::errc() || end != digits.data() + digits.size() || rank < 0) {
    return std::nullopt;
  }
  return Line{*bytes, rank};
}

void add_merges(const std::string& name, BpeVocabularyBuilder& builder) {
  BpeMerger merger(builder.so_far().bytes);
  BpeMerger::Memory memory;
  std::vector<TokenId> parts;
  for (std::size_t id = 0; id < builder.so_far().tokens.size(); ++id) {
    const BpeToken& token = builder.so_far().tokens[id];
    if (token.bytes.size() == 1 || token.spelling == kBpeEndToken) {
      continue;
    }
    parts.clear();
    merger.merge(token.bytes, parts, memory);
    const std::string where =
        name + ": the token " + printable(token.spelling, true) + " of rank " + std::to_string(id);
    if (parts.size() != 2) {
      throw UserError(where + " becomes " + std::to_string(parts.size()) +
                      " tokens of lower ranks; expected two, which it joins");
    }
    const BpeMerge merge{parts[0], parts[1], static_cast<TokenId>(id)};
    builder.add_merge(merge, where);
    merger.add(merge);
  }
}

}  // namespace

bool starts_tiktoken(std::string_view bytes) {
  const std::string_view line = bytes.substr(0, bytes.find('\n'));
  return line.find("== ") == 2 && parse_line(line).has_value();
}

BpeVocabulary read_tiktoken(std::string_view bytes, const std::string& name) {
  BpeVocabularyBuilder builder(name);
  for (std::int64_t number = 1; !bytes.empty(); ++number) {
    const std::string_view line = bytes.substr(0, bytes.find('\n'));
    bytes.remove_prefix(std::min(line.size() + 1, bytes.size()));
    if (line.empty()) {
      continue;
    }
    const std::string where = name + ": line " + std::to_string(number);
    const std::optional<Line> read = parse_line(line);
    if (!read) {
      throw UserError(where + ": expected a token in base64 and its rank, found " +
                      printable(line, true));
    }
    builder.add_token(read->rank, {spell_bytes(read->bytes), read->bytes}, where);
  }
  builder.end_tokens();
  add_merges(name, builder);
  return builder.finish();
}

}  // namespace transnormer
