#include "tokenizer/bpe_vocabulary.h"

#include <algorithm>
#include <array>
#include <limits>
#include <utility>

#include "config/json_tree.h"
#include "tokenizer/utf8.h"
#include "util/error.h"

namespace transnormer {
namespace {

constexpr std::size_t kBytes = 256;

constexpr bool prints(std::size_t byte) {
  return (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte != 0xAD);
}

constexpr std::array<char16_t, kBytes> make_letters() {
  std::array<char16_t, kBytes> letters{};
  char16_t next = 0x100;
  for (std::size_t byte = 0; byte < kBytes; ++byte) {
    letters[byte] = prints(byte) ? static_cast<char16_t>(byte) : next++;
  }
  return letters;
}

constexpr std::array<char16_t, kBytes> kLetters = make_letters();

constexpr std::size_t kLetterEnd = 0x144;  // one past the last letter

constexpr std::array<std::int16_t, kLetterEnd> make_bytes() {
  std::array<std::int16_t, kLetterEnd> bytes{};
  bytes.fill(-1);
  for (std::size_t byte = 0; byte < kBytes; ++byte) {
    bytes[kLetters[byte]] = static_cast<std::int16_t>(byte);
  }
  return bytes;
}

constexpr std::array<std::int16_t, kLetterEnd> kByteOfLetter = make_bytes();

std::string shown_byte(std::size_t byte) {
  constexpr std::string_view kDigits = "0123456789ABCDEF";
  return {'0', 'x', kDigits[byte / 16], kDigits[byte % 16]};
}

}  // namespace

std::string spell_bytes(std::string_view bytes) {
  std::string spelling;
  for (const char byte : bytes) {
    const char16_t letter = kLetters[static_cast<unsigned char>(byte)];
    if (letter < 0x80) {
      spelling += static_cast<char>(letter);
    } else {
      spelling += static_cast<char>(0xC0 | letter >> 6);
      spelling += static_cast<char>(0x80 | (letter & 0x3F));
    }
  }
  return spelling;
}

std::optional<std::string> spelled_bytes(std::string_view spelling) {
  std::string bytes;
  while (!spelling.empty()) {
    const Utf8Step step = utf8_step(spelling);
    const auto at = [&](std::size_t i) { return static_cast<unsigned char>(spelling[i]); };
    const std::size_t letter = step.size == 1 ? at(0) : (at(0) & 0x1FU) << 6 | (at(1) & 0x3FU);
    if (step.kind != Utf8Step::Kind::character || step.size > 2 || letter >= kLetterEnd ||
        kByteOfLetter[letter] < 0) {
      return std::nullopt;
    }
    bytes += static_cast<char>(kByteOfLetter[letter]);
    spelling.remove_prefix(step.size);
  }
  return bytes;
}

void BpeVocabularyBuilder::add_token(std::int64_t id, BpeToken token, const std::string& where) {
  if (id < 0 || id >= std::numeric_limits<TokenId>::max()) {
    throw UserError(where + ": " + std::to_string(id) + " is no id; expected 0 or more");
  }
  if (token.spelling.empty()) {
    throw UserError(where + ": the token is empty");
  }
  const auto [known, is_new] = ids_.try_emplace(token.spelling, static_cast<TokenId>(id));
  if (!is_new) {
    throw UserError(where + ": the token " + printable(token.spelling, true) +
                    " is there already, with the id " + std::to_string(known->second));
  }
  std::vector<BpeToken>& tokens = vocabulary_.tokens;
  tokens.push_back(std::move(token));
}

void BpeVocabularyBuilder::end_tokens() {
  std::vector<BpeToken> by_id(vocabulary_.tokens.size());
  for (BpeToken& token : vocabulary_.tokens) {
    const TokenId id = ids_.at(token.spelling);
    if (static_cast<std::size_t>(id) >= by_id.size()) {
      throw UserError(name_ + ": has the id " + std::to_string(id) + ", but only " +
                      std::to_string(by_id.size()) +
                      " tokens; expected ids from 0 on without a hole");
    }
    BpeToken& place = by_id[static_cast<std::size_t>(id)];
    if (!place.spelling.empty()) {
      throw UserError(name_ + ": the id " + std::to_string(id) + " is that of " +
                      printable(place.spelling, true) + " and of " +
                      printable(token.spelling, true));
    }
    place = std::move(token);
  }
  vocabulary_.tokens = std::move(by_id);
  for (std::size_t byte = 0; byte < kBytes; ++byte) {
    const auto found = ids_.find(spell_bytes(std::string(1, static_cast<char>(byte))));
    if (found == ids_.end() ||
        vocabulary_.tokens[static_cast<std::size_t>(found->second)].is_added) {
      throw UserError(name_ + ": has no token for the byte " + shown_byte(byte) +
                      "; expected one for each of the 256, as byte-level BPE has");
    }
    vocabulary_.bytes[byte] = found->second;
  }
}

TokenId BpeVocabularyBuilder::id_of(std::string_view spelling, const std::string& where) const {
  const auto found = ids_.find(std::string(spelling));
  if (found == ids_.end()) {
    throw UserError(where + ": the vocabulary has no token " + printable(spelling, true));
  }
  return found->second;
}

void BpeVocabularyBuilder::add_merge(std::string_view left, std::string_view right,
                                     const std::string& where) {
  add_merge({id_of(left, where), id_of(right, where),
             id_of(std::string(left) + std::string(right), where)},
            where);
}

void BpeVocabularyBuilder::add_merge(BpeMerge merge, const std::string& where) {
  const std::string& joined = vocabulary_.tokens[static_cast<std::size_t>(merge.joined)].spelling;
  if (!pairs_.insert(pair_key(merge.left, merge.right)).second) {
    throw UserError(where + ": the merge to " + printable(joined, true) + " is there already");
  }
  for (const TokenId id : {merge.left, merge.right, merge.joined}) {
    const BpeToken& token = vocabulary_.tokens[static_cast<std::size_t>(id)];
    if (token.is_added || token.spelling == kBpeEndToken) {
      throw UserError(where + ": merges " + printable(token.spelling, true) +
                      ", an added token, which no text must become");
    }
  }
  vocabulary_.merges.push_back(merge);
}

BpeVocabulary BpeVocabularyBuilder::finish() {
  std::vector<BpeToken>& tokens = vocabulary_.tokens;
  const auto [end, is_new] =
      ids_.try_emplace(std::string(kBpeEndToken), static_cast<TokenId>(tokens.size()));
  if (is_new) {
    tokens.push_back({std::string(kBpeEndToken), std::string(kBpeEndToken), true});
  }
  vocabulary_.end = end->second;
  tokens[static_cast<std::size_t>(vocabulary_.end)].is_added = true;
  return std::move(vocabulary_);
}

}  // namespace transnormer
