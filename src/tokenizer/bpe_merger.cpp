#include "tokenizer/bpe_merger.h"

#include <algorithm>
#include <bit>
#include <functional>
#include <limits>
#include <utility>

#include "util/error.h"
#include "util/units.h"

namespace transnormer {
namespace {

constexpr std::int32_t kNone = -1;  // before the first part, behind the last

}  // namespace

BpeMerger::BpeMerger(const std::array<TokenId, 256>& bytes, std::size_t expected_merges)
    : bytes_(bytes), slots_(std::bit_ceil(2 * expected_merges + 2)) {}

std::size_t BpeMerger::slot_of(std::uint64_t pair) const {
  const std::size_t mask = slots_.size() - 1;
  std::uint64_t hash = pair * 0x9E3779B97F4A7C15;
  hash ^= hash >> 32;
  std::size_t index = hash & mask;
  while (slots_[index].rank >= 0 && slots_[index].pair != pair) {
    index = (index + 1) & mask;
  }
  return index;
}

void BpeMerger::add(BpeMerge merge) {
  if (2 * merges_.size() >= slots_.size()) {
    grow();
  }
  const std::uint64_t pair = pair_key(merge.left, merge.right);
  slots_[slot_of(pair)] = {pair, static_cast<std::int32_t>(merges_.size())};
  merges_.push_back(merge);
}

void BpeMerger::grow() {
  const std::vector<Slot> former = std::exchange(slots_, std::vector<Slot>(2 * slots_.size()));
  for (const Slot& slot : former) {
    if (slot.rank >= 0) {
      slots_[slot_of(slot.pair)] = slot;
    }
  }
}

// Puts a part and the one behind it on the heap, if they can be joined.
void BpeMerger::consider(std::int32_t left, Memory& memory) const {
  const Memory::Part& part = memory.parts[static_cast<std::size_t>(left)];
  if (part.behind == kNone) {
    return;
  }
  const TokenId right = memory.parts[static_cast<std::size_t>(part.behind)].id;
  if (const std::int32_t rank = rank_of(part.id, right); rank >= 0) {
    memory.heap.push_back(pair_key(rank, left));
    std::ranges::push_heap(memory.heap, std::greater<>());
  }
}

void BpeMerger::merge(std::string_view piece, std::vector<TokenId>& ids, Memory& memory) const {
  if (piece.size() >= static_cast<std::size_t>(std::numeric_limits<std::int32_t>::max())) {
    throw UserError("the text holds a word of " + format_bytes(static_cast<double>(piece.size())) +
                    "; expected less than 2 GiB");
  }
  const auto size = static_cast<std::int32_t>(piece.size());
  std::vector<Memory::Part>& parts = memory.parts;
  parts.clear();
  for (std::int32_t i = 0; i < size; ++i) {
    const auto byte = static_cast<unsigned char>(piece[static_cast<std::size_t>(i)]);
    parts.push_back({bytes_[byte], i - 1, i + 1 < size ? i + 1 : kNone});
  }
  memory.heap.clear();
  for (std::int32_t i = 0; i < size; ++i) {
    consider(i, memory);
  }
  const auto part = [&parts](std::int32_t place) -> Memory::Part& {
    return parts[static_cast<std::size_t>(place)];
  };
  while (!memory.heap.empty()) {
    std::ranges::pop_heap(memory.heap, std::greater<>());
    const std::uint64_t first = memory.heap.back();
    memory.heap.pop_back();
    const BpeMerge& merge = merges_[first >> 32];
    const auto place = static_cast<std::int32_t>(first & 0xFFFFFFFF);
    Memory::Part& left = part(place);
    // The parts may have been joined with others since the pair was put on the heap.
    if (left.id != merge.left || left.behind == kNone || part(left.behind).id != merge.right) {
      continue;
    }
    Memory::Part& right = part(left.behind);
    left.id = merge.joined;
    left.behind = right.behind;
    right.id = kNone;
    if (left.behind != kNone) {
      part(left.behind).before = place;
    }
    consider(place, memory);
    if (left.before != kNone) {
      consider(left.before, memory);
    }
  }
  for (std::int32_t place = 0; place != kNone && place < size; place = part(place).behind) {
    ids.push_back(part(place).id);
  }
}

}  // namespace transnormer
