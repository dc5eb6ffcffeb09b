#include "tokenizer/plain_text.h"

#include <algorithm>
#include <cstring>

#include "tokenizer/utf8.h"

namespace transnormer {
namespace {

// How many bytes at the start are ASCII, up to seven more left out.
std::size_t ascii_length(std::string_view text) {
  constexpr std::uint64_t kHighBits = 0x8080808080808080;
  std::size_t length = 0;
  for (std::uint64_t eight = 0; length + sizeof eight <= text.size(); length += sizeof eight) {
    std::memcpy(&eight, text.data() + length, sizeof eight);
    if ((eight & kHighBits) != 0) {
      break;
    }
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

}  // namespace transnormer
