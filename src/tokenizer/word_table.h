// Numbers byte strings 0, 1, 2 .. in the order in which they come. Made for the two hot loops of
// word tokenising, counting and looking up: open addressing, 8 bytes a slot, all words in one
// buffer, so that frequent words stay in the processor's cache (std::unordered_map costs a node
// and two cache misses a word).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace transnormer {

class WordTable {
 public:
  explicit WordTable(std::size_t expected_words = 1024);

  // The number of the word, or -1.
  [[nodiscard]] std::int32_t find(std::string_view word) const;
  // The number of the word, new or not.
  std::int32_t insert(std::string_view word);

  [[nodiscard]] std::int32_t size() const { return static_cast<std::int32_t>(ends_.size()); }
  // Valid until the next insert().
  [[nodiscard]] std::string_view word(std::int32_t number) const {
    const std::size_t begin = number == 0 ? 0 : ends_[static_cast<std::size_t>(number) - 1];
    return {bytes_.data() + begin, ends_[static_cast<std::size_t>(number)] - begin};
  }

 private:
  struct Slot {
    std::uint32_t tag = 0;     // upper half of the hash
    std::int32_t number = -1;  // -1: free
  };

  [[nodiscard]] std::size_t slot_of(std::string_view word, std::uint64_t hash) const;
  void grow();

  std::vector<Slot> slots_;  // a power of two of them, at most half taken
  std::string bytes_;
  std::vector<std::size_t> ends_;
};

}  // namespace transnormer
