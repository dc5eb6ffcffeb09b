// JSON with comments as a tree that remembers lines, so that a fault can be pointed at, and that
// notices duplicate keys, which a plain JSON document swallows.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace transnormer {

struct JsonNode {
  // `raw` is the value of a `--set`, to be read by the type of its field.
  enum class Kind { null, boolean, integer, number, text, list, object, raw };

  Kind kind = Kind::null;
  int line = 0;  // 0 outside files
  bool boolean = false;
  std::int64_t integer = 0;
  double number = 0;            // of integers too
  std::string text;             // of text and raw; of numbers, as they were written
  std::string key;              // of a member of an object
  std::vector<JsonNode> items;  // of lists and objects; a key may occur once only

  [[nodiscard]] const JsonNode* find(std::string_view member) const;
  // The value as it shows in a message: one line, cut where long.
  [[nodiscard]] std::string shown() const;
};

// `word` in one line of printable characters, cut where long; in quotes if asked.
[[nodiscard]] std::string printable(std::string_view word, bool quoted);

[[nodiscard]] bool is_utf8(const std::string& text);

struct Fault {
  int line = 0;
  std::string message;
};

// Syntax errors, NUL characters, numbers that no double holds and absurd nesting throw UserError
// with NAME:LINE:COLUMN. Duplicate keys are appended to `faults` (the last one stays in the tree).
[[nodiscard]] JsonNode parse_json(const std::string& text, const std::string& name,
                                  std::vector<Fault>& faults);

// The value of a `--set` for a field of numbers or truth: a typed node, or text if it is neither.
[[nodiscard]] JsonNode parse_scalar(const std::string& raw);

}  // namespace transnormer
