#include "tokenizer/word_table.h"

#include <bit>
#include <cstring>
#include <stdexcept>

namespace transnormer {
namespace {

template <typename Word>
std::uint64_t load(const char* from) {
  Word word;
  std::memcpy(&word, from, sizeof word);
  return word;
}

std::uint64_t mix(std::uint64_t hash, std::uint64_t block) {
  hash = (hash ^ block) * 0x9E3779B97F4A7C15;
  return hash ^ (hash >> 32);
}

// Eight bytes a step; the last step overlaps the one before, so no byte is read alone.
std::uint64_t hash_of(std::string_view word) {
  const char* data = word.data();
  const std::size_t size = word.size();
  std::uint64_t hash = size * 0xD6E8FEB86659FD93;
  if (size >= 8) {
    for (std::size_t i = 0; i + 8 < size; i += 8) {
      hash = mix(hash, load<std::uint64_t>(data + i));
    }
    hash = mix(hash, load<std::uint64_t>(data + size - 8));
  } else if (size >= 4) {
    hash = mix(hash, load<std::uint32_t>(data) << 32 | load<std::uint32_t>(data + size - 4));
  } else if (size > 0) {
    hash = mix(hash, load<std::uint8_t>(data) << 16 | load<std::uint8_t>(data + size / 2) << 8 |
                         load<std::uint8_t>(data + size - 1));
  }
  return mix(hash, 0);
}

std::uint32_t tag_of(std::uint64_t hash) {
  return static_cast<std::uint32_t>(hash >> 32);
}

}  // namespace

WordTable::WordTable(std::size_t expected_words) : slots_(std::bit_ceil(2 * expected_words + 2)) {
  ends_.reserve(expected_words);
}

std::size_t WordTable::slot_of(std::string_view word, std::uint64_t hash) const {
  const std::size_t mask = slots_.size() - 1;
  std::size_t index = hash & mask;
  while (slots_[index].number >= 0 &&
         (slots_[index].tag != tag_of(hash) || this->word(slots_[index].number) != word)) {
    index = (index + 1) & mask;
  }
  return index;
}

std::int32_t WordTable::find(std::string_view word) const {
  return slots_[slot_of(word, hash_of(word))].number;
}

std::int32_t WordTable::insert(std::string_view word) {
  const std::uint64_t hash = hash_of(word);
  std::size_t index = slot_of(word, hash);
  if (slots_[index].number >= 0) {
    return slots_[index].number;
  }
  if (2 * (ends_.size() + 1) > slots_.size()) {
    grow();
    index = slot_of(word, hash);
  }
  if (ends_.size() >= std::size_t{INT32_MAX}) {
    throw std::length_error("more than 2^31 different words");
  }
  slots_[index] = {tag_of(hash), size()};
  bytes_ += word;
  ends_.push_back(bytes_.size());
  return size() - 1;
}

void WordTable::grow() {
  std::vector<Slot> larger(2 * slots_.size());
  slots_.swap(larger);
  for (std::int32_t number = 0; number < size(); ++number) {
    const std::uint64_t hash = hash_of(word(number));
    slots_[slot_of(word(number), hash)] = {tag_of(hash), number};
  }
}

}  // namespace transnormer
