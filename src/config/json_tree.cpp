#include "config/json_tree.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdio>
#include <iterator>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <unordered_map>
#include <utility>

#include "util/error.h"
#include "util/units.h"

namespace transnormer {
namespace {

// No config nests deeper; a tree of unlimited depth could exhaust the stack.
constexpr std::size_t kMaxDepth = 32;

constexpr std::int64_t kMostDuplicates = 100;  // that are told one by one

struct Position {
  int line = 1;
  std::size_t offset = 0;  // characters read
};

// Characters of the text, counting lines on the way. The parser reads each character once and stops
// behind a key, so the position at that event is the key's.
class CountingIterator {
 public:
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = const char&;

  CountingIterator(const char* at, Position* position) : at_(at), position_(position) {}
  reference operator*() const { return *at_; }
  CountingIterator& operator++() {
    position_->line += *at_ == '\n' ? 1 : 0;
    ++position_->offset;
    ++at_;
    return *this;
  }
  bool operator==(const CountingIterator& other) const { return at_ == other.at_; }
  bool operator!=(const CountingIterator& other) const { return at_ != other.at_; }

 private:
  const char* at_;
  Position* position_;
};

// `offset` counts characters from the start of the text.
[[noreturn]] void fail_at(const std::string& text, const std::string& name, std::size_t offset,
                          const std::string& reason) {
  const std::string_view before = std::string_view(text).substr(0, offset);
  const auto line = 1 + std::count(before.begin(), before.end(), '\n');
  const std::size_t column = before.size() - (before.rfind('\n') + 1) + 1;
  throw UserError(name + ":" + std::to_string(line) + ":" + std::to_string(column) + ": " + reason);
}

// The parser takes a NUL for the end of the text. `read` is the last offset that it has come to.
void refuse_nul(const std::string& text, const std::string& name, std::size_t read) {
  if (const std::size_t at = text.find('\0'); at <= read && at != std::string::npos) {
    fail_at(text, name, at, "holds a NUL character; expected JSON in UTF-8");
  }
}

// Builds the tree from the parser's events.
class TreeBuilder {
 public:
  using Json = nlohmann::json;

  TreeBuilder(const std::string& text, const std::string& name, const Position& position,
              std::vector<Fault>& faults)
      : text_(text), name_(name), position_(position), faults_(faults) {}

  [[nodiscard]] JsonNode take() {
    if (duplicates_ > kMostDuplicates) {
      faults_.push_back({pending_line_, "and " + format_count(duplicates_ - kMostDuplicates) +
                                            " more keys given twice"});
    }
    return std::move(root_);
  }

  bool null() {
    place({});
    return true;
  }
  bool boolean(bool value) {
    JsonNode node;
    node.kind = JsonNode::Kind::boolean;
    node.boolean = value;
    place(std::move(node));
    return true;
  }
  bool number_integer(std::int64_t value) {
    JsonNode node;
    node.kind = JsonNode::Kind::integer;
    node.integer = value;
    node.number = static_cast<double>(value);
    node.text = std::to_string(value);
    place(std::move(node));
    return true;
  }
  bool number_unsigned(std::uint64_t value) {
    if (value <= static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) {
      return number_integer(static_cast<std::int64_t>(value));
    }
    return number_float(static_cast<double>(value), std::to_string(value));
  }
  bool number_float(double value, const std::string& written) {
    JsonNode node;
    node.kind = JsonNode::Kind::number;
    node.number = value;
    node.text = written;
    place(std::move(node));
    return true;
  }
  bool string(std::string& value) {
    JsonNode node;
    node.kind = JsonNode::Kind::text;
    node.text = std::move(value);
    place(std::move(node));
    return true;
  }
  bool binary(std::vector<std::uint8_t>&) { return false; }  // not in JSON text

  bool start_object(std::size_t) { return open(JsonNode::Kind::object); }
  bool start_array(std::size_t) { return open(JsonNode::Kind::list); }
  bool end_object() { return close(); }
  bool end_array() { return close(); }

  bool key(std::string& key) {
    pending_key_ = std::move(key);
    pending_line_ = position_.line;
    return true;
  }

  bool parse_error(std::size_t end, const std::string& last, const Json::exception& error) {
    const std::size_t offset = end > 0 ? end - 1 : 0;  // of the last character read
    refuse_nul(text_, name_, offset);
    if (error.id == 406) {
      fail(offset, dotted_path() + ": expected a finite number, got " + printable(last, false));
    }
    // "[json.exception.parse_error.101] parse error at line 1, column 2: syntax error while .."
    std::string reason = error.what();
    if (const std::size_t at = reason.find(": "); at != std::string::npos) {
      reason.erase(0, at + 2);
    }
    const char read = last.empty() ? ' ' : last.back();
    fail(offset, "not valid JSON: " + printable(reason, false) +
                     (read == 'N' || read == 'I' ? "; a number must be finite" : ""));
  }

 private:
  [[noreturn]] void fail(std::size_t offset, const std::string& reason) const {
    fail_at(text_, name_, offset, reason);
  }

  // A list or object that is being filled. Its node stays where it is: what holds it grows again
  // only when it is closed.
  struct Open {
    JsonNode* node;
    std::unordered_map<std::string, std::size_t> places;  // of keys among the items
  };

  // Of the value that comes next.
  [[nodiscard]] std::string dotted_path() const {
    std::string path;
    for (std::size_t depth = 0; depth < open_.size(); ++depth) {
      const JsonNode& node = *open_[depth].node;
      const bool last = depth + 1 == open_.size();
      if (node.kind == JsonNode::Kind::list) {
        path += "[" + std::to_string(node.items.size() - (last ? 0 : 1)) + "]";
      } else {
        path += path.empty() ? "" : ".";
        path += printable(last ? pending_key_ : open_[depth + 1].node->key, false);
      }
    }
    return path.empty() ? "value" : path;
  }

  // Returns the node in the tree.
  JsonNode& place(JsonNode node) {
    node.line = position_.line;
    if (open_.empty()) {
      return root_ = std::move(node);
    }
    std::vector<JsonNode>& items = open_.back().node->items;
    if (open_.back().node->kind == JsonNode::Kind::list) {
      return items.emplace_back(std::move(node));
    }
    node.key = pending_key_;
    node.line = pending_line_;
    const auto [place, is_new] = open_.back().places.try_emplace(pending_key_, items.size());
    if (is_new) {
      return items.emplace_back(std::move(node));
    }
    JsonNode& former = items[place->second];
    if (++duplicates_ <= kMostDuplicates) {
      faults_.push_back({pending_line_, dotted_path() + ": given twice, first in line " +
                                            std::to_string(former.line) +
                                            "; expected each key once"});
    }
    return former = std::move(node);
  }

  bool open(JsonNode::Kind kind) {
    if (open_.size() == kMaxDepth) {
      fail(position_.offset, "nested more than " + std::to_string(kMaxDepth) + " deep");
    }
    JsonNode node;
    node.kind = kind;
    open_.push_back({&place(std::move(node)), {}});
    return true;
  }

  bool close() {
    open_.pop_back();
    return true;
  }

  const std::string& text_;
  const std::string& name_;
  const Position& position_;
  std::vector<Fault>& faults_;
  JsonNode root_;
  std::vector<Open> open_;  // from the outermost to the innermost
  std::string pending_key_;
  int pending_line_ = 0;
  std::int64_t duplicates_ = 0;
};

// Control characters that JSON lets stand: DEL, and U+0080 to U+009F in UTF-8.
std::string without_controls(const std::string& text) {
  std::string escaped;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const bool is_high = text[i] == '\xC2' && i + 1 < text.size() && text[i + 1] < '\xA0';
    const auto code = static_cast<unsigned char>(text[is_high ? i + 1 : i]);
    if (!is_high && code != 0x7F) {
      escaped += text[i];
      continue;
    }
    std::array<char, 8> name{};
    std::snprintf(name.data(), name.size(), "\\u%04x", static_cast<unsigned>(code));
    escaped += name.data();
    i += is_high ? 1 : 0;
  }
  return escaped;
}

}  // namespace

const JsonNode* JsonNode::find(std::string_view member) const {
  for (const JsonNode& item : items) {
    if (kind == Kind::object && item.key == member) {
      return &item;
    }
  }
  return nullptr;
}

std::string JsonNode::shown() const {
  switch (kind) {
    case Kind::null:
      return "null";
    case Kind::boolean:
      return boolean ? "true" : "false";
    case Kind::integer:
    case Kind::number:
      return printable(text, false);
    case Kind::text:
    case Kind::raw:
      return printable(text, true);
    case Kind::list:
      return "a list";
    case Kind::object:
      return "an object";
  }
  return "";
}

std::string printable(std::string_view word, bool quoted) {
  constexpr std::size_t kLongest = 160;
  const bool cut = word.size() > kLongest;
  const std::string text(word.substr(0, kLongest));
  std::string escaped = without_controls(
      nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
  if (!quoted) {
    escaped = escaped.substr(1, escaped.size() - 2);
  }
  return cut ? escaped + "..." : escaped;
}

bool is_utf8(const std::string& text) {
  try {
    static_cast<void>(nlohmann::json(text).dump());
    return true;
  } catch (const nlohmann::json::type_error&) {
    return false;
  }
}

JsonNode parse_json(const std::string& text, const std::string& name, std::vector<Fault>& faults) {
  Position position;
  TreeBuilder builder(text, name, position, faults);
  const CountingIterator begin(text.data(), &position);
  const CountingIterator end(text.data() + text.size(), &position);
  // Faults are thrown by the builder, so the result is always true.
  static_cast<void>(nlohmann::json::sax_parse(begin, end, &builder,
                                              nlohmann::json::input_format_t::json, true, true));
  refuse_nul(text, name, text.size());
  return builder.take();
}

JsonNode parse_scalar(const std::string& raw) {
  JsonNode node;
  node.text = raw;
  if (raw == "true" || raw == "false") {
    node.kind = JsonNode::Kind::boolean;
    node.boolean = raw == "true";
  } else if (const std::optional<std::int64_t> integer = parse_integer(raw)) {
    node.kind = JsonNode::Kind::integer;
    node.integer = *integer;
    node.number = static_cast<double>(*integer);
  } else if (const std::optional<double> number = parse_real(raw)) {
    node.kind = JsonNode::Kind::number;
    node.number = *number;
  } else {
    node.kind = JsonNode::Kind::text;
  }
  return node;
}

}  // namespace transnormer
