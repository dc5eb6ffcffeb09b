#include "tokenizer/plain_text.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "tokenizer/utf8.h"

namespace transnormer {
namespace {

std::uint64_t eight_at(const char* from) {
  std::uint64_t eight = 0;
  std::memcpy(&eight, from, sizeof eight);
  return eight;
}

// How many bytes at the start are ASCII, up to seven more left out.
std::size_t ascii_length(std::string_view text) {
  constexpr std::uint64_t kHighBits = 0x8080808080808080;
  const char* const from = text.data();
  std::size_t length = 0;
  for (; length + 32 <= text.size(); length += 32) {
    const char* const at = from + length;
    if (((eight_at(at) | eight_at(at + 8) | eight_at(at + 16) | eight_at(at + 24)) & kHighBits) !=
        0) {
      break;
    }
  }
  while (length + 8 <= text.size() && (eight_at(from + length) & kHighBits) == 0) {
    length += 8;
  }
  return length;
}

}  // namespace

std::int64_t drop_carriage_returns(std::string& text) {
  const std::size_t before = text.size();
  std::size_t from = std::min(text.find('\r'), before);
  std::size_t to = from;
  for (; from < before; ++from) {
    if (text[from] == '\r' && (from + 1 == before || text[from + 1] == '\n')) {
      continue;
    }
    text[to++] = text[from];
  }
  text.resize(to);
  return static_cast<std::int64_t>(before - to);
}

InvalidUtf8 find_invalid_utf8(std::string_view text) {
  InvalidUtf8 found;
  for (std::size_t at = ascii_length(text); at < text.size();) {
    const std::string_view rest = text.substr(at);
    const Utf8Step step = utf8_step(rest);
    if (step.kind != Utf8Step::Kind::character) {
      found.first = found.bytes == 0 ? at : found.first;
      found.bytes += static_cast<std::int64_t>(step.size);
    }
    at += step.size;
    at += step.size == 1 ? ascii_length(text.substr(at)) : 0;
  }
  return found;
}

std::int64_t count_byte(std::string_view text, char byte) {
  constexpr std::size_t kLanes = 32;
  constexpr std::size_t kMostSteps = 255;  // that a lane can count
  std::int64_t count = 0;
  while (text.size() >= kLanes) {
    const std::size_t steps = std::min(text.size() / kLanes, kMostSteps);
    std::array<std::uint8_t, kLanes> lanes{};
    for (std::size_t step = 0; step < steps; ++step) {
      for (std::size_t lane = 0; lane < kLanes; ++lane) {
        lanes[lane] += static_cast<std::uint8_t>(text[step * kLanes + lane] == byte);
      }
    }
    for (const std::uint8_t lane : lanes) {
      count += lane;
    }
    text.remove_prefix(steps * kLanes);
  }
  return count + std::ranges::count(text, byte);
}

}  // namespace transnormer
