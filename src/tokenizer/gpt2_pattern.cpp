#include "tokenizer/gpt2_pattern.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

#include "tokenizer/unicode_ranges.h"
#include "tokenizer/utf8.h"

namespace transnormer {
namespace {

enum class Class : std::uint8_t { other, letter, number, white_space };

// The property White_Space. In UTF-8, since places to cut are sought from behind.
constexpr std::array<std::string_view, 25> kWhiteSpace{
    "\t",           "\n",           "\v",           "\f",           "\r",           " ",
    "\xC2\x85",     "\xC2\xA0",     "\xE1\x9A\x80", "\xE2\x80\x80", "\xE2\x80\x81", "\xE2\x80\x82",
    "\xE2\x80\x83", "\xE2\x80\x84", "\xE2\x80\x85", "\xE2\x80\x86", "\xE2\x80\x87", "\xE2\x80\x88",
    "\xE2\x80\x89", "\xE2\x80\x8A", "\xE2\x80\xA8", "\xE2\x80\xA9", "\xE2\x80\xAF", "\xE2\x81\x9F",
    "\xE3\x80\x80"};

// Of a whole character in UTF-8.
char32_t code_point(std::string_view character) {
  const auto lead = static_cast<unsigned char>(character[0]);
  if (character.size() == 1) {
    return lead;
  }
  char32_t point = lead & (0xFFU >> (character.size() + 1));
  for (const char byte : character.substr(1)) {
    point = point << 6 | (static_cast<unsigned char>(byte) & 0x3FU);
  }
  return point;
}

std::vector<Class> make_classes() {
  std::vector<Class> classes(0x110000, Class::other);
  const auto mark = [&classes](char32_t first, char32_t last, Class as) {
    std::fill(classes.begin() + first, classes.begin() + last + 1, as);
  };
  for (const CodePointRange& range : kLetters) {
    mark(range.first, range.last, Class::letter);
  }
  for (const CodePointRange& range : kNumbers) {
    mark(range.first, range.last, Class::number);
  }
  for (const std::string_view space : kWhiteSpace) {
    mark(code_point(space), code_point(space), Class::white_space);
  }
  return classes;
}

const Class* classes() {
  static const std::vector<Class> kClasses = make_classes();
  return kClasses.data();
}

struct Step {
  Class is;
  std::size_t size;  // bytes
};

Step step_at(const Class* classes, std::string_view text, std::size_t at) {
  const auto byte = static_cast<unsigned char>(text[at]);
  if (byte < 0x80) {
    return {classes[byte], 1};
  }
  const std::string_view rest = text.substr(at);
  const Utf8Step step = utf8_step(rest);
  if (step.kind != Utf8Step::Kind::character) {
    return {Class::other, 1};
  }
  return {classes[code_point(rest.substr(0, step.size))], step.size};
}

std::size_t run_end(const Class* classes, std::string_view text, std::size_t at, Class of) {
  while (at < text.size()) {
    const Step step = step_at(classes, text, at);
    if (step.is != of) {
      break;
    }
    at += step.size;
  }
  return at;
}

// Bytes of the contraction behind an apostrophe, or 0.
std::size_t contraction(std::string_view behind) {
  for (const std::string_view letters : {"s", "t", "re", "ve", "m", "ll", "d"}) {
    if (behind.starts_with(letters)) {
      return letters.size();
    }
  }
  return 0;
}

// `\s+(?!\S)|\s+`: all of the run where the text ends with it, else all but its last character, if
// that leaves any.
std::size_t white_space_end(const Class* classes, std::string_view text, std::size_t at) {
  std::size_t end = at;
  std::size_t last = at;  // the last character of the run
  while (end < text.size()) {
    const Step step = step_at(classes, text, end);
    if (step.is != Class::white_space) {
      return last > at ? last : end;
    }
    last = end;
    end += step.size;
  }
  return end;
}

bool ends_with_white_space(std::string_view text) {
  return std::ranges::any_of(kWhiteSpace,
                             [&](std::string_view space) { return text.ends_with(space); });
}

}  // namespace

std::size_t gpt2_piece_end(std::string_view text, std::size_t at) {
  const Class* const table = classes();
  if (text[at] == '\'') {
    if (const std::size_t size = contraction(text.substr(at + 1)); size > 0) {
      return at + 1 + size;
    }
  }
  const std::size_t begin = text[at] == ' ' && at + 1 < text.size() ? at + 1 : at;
  const Step first = step_at(table, text, begin);
  if (first.is == Class::white_space) {
    return white_space_end(table, text, at);
  }
  return run_end(table, text, begin + first.size, first.is);
}

std::size_t last_gpt2_cut(std::string_view text, std::size_t from) {
  for (std::size_t at = text.size(); at-- > from && at > 0;) {
    if (text[at] != ' ' && text[at] != '\n') {
      continue;
    }
    const bool has_return = text[at] == '\n' && text[at - 1] == '\r';
    const std::size_t cut = has_return ? at - 1 : at;
    if (cut > 0 && !ends_with_white_space(text.substr(0, cut))) {
      return cut;
    }
  }
  return std::string_view::npos;
}

}  // namespace transnormer
