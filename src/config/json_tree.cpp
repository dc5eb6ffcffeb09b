#include "config/json_tree.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <iterator>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

#include "util/error.h"

namespace transnormer {
namespace {

// No config nests deeper; a tree of unlimited depth could exhaust the stack.
constexpr std::size_t kMaxDepth = 32;

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

// Builds the tree from the parser's events.
class TreeBuilder {
 public:
  using Json = nlohmann::json;

  TreeBuilder(const std::string& text, const std::string& name, const Position& position,
              std::vector<Fault>& faults)
      : text_(text), name_(name), position_(position), faults_(faults) {}

  [[nodiscard]] JsonNode take() { return std::move(root_); }

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
  // `offset` counts characters from the start of the text.
  [[noreturn]] void fail(std::size_t offset, const std::string& reason) const {
    const std::string_view before = std::string_view(text_).substr(0, offset);
    const auto line = 1 + std::count(before.begin(), before.end(), '\n');
    const std::size_t column = before.size() - (before.rfind('\n') + 1) + 1;
    throw UserError(name_ + ":" + std::to_string(line) + ":" + std::to_string(column) + ": " +
                    reason);
  }

  // The list or object that is being filled.
  JsonNode& current() {
    JsonNode* node = &root_;
    for (std::size_t depth = 1; depth < depth_; ++depth) {
      node = &node->items.back();
    }
    return *node;
  }

  // Of the value that comes next.
  [[nodiscard]] std::string dotted_path() const {
    std::string path;
    const JsonNode* node = &root_;
    for (std::size_t depth = 1; depth <= depth_; ++depth) {
      const bool last = depth == depth_;
      if (node->kind == JsonNode::Kind::list) {
        path += "[" + std::to_string(node->items.size() - (last ? 0 : 1)) + "]";
      } else {
        path += path.empty() ? "" : ".";
        path += printable(last ? pending_key_ : node->items.back().key, false);
      }
      if (!last) {
        node = &node->items.back();
      }
    }
    return path.empty() ? "value" : path;
  }

  void place(JsonNode node) {
    if (depth_ == 0) {
      node.line = position_.line;
      root_ = std::move(node);
      return;
    }
    JsonNode& parent = current();
    if (parent.kind == JsonNode::Kind::list) {
      node.line = position_.line;
    } else {
      node.key = pending_key_;
      node.line = pending_line_;
      drop_duplicate(parent);
    }
    parent.items.push_back(std::move(node));
  }

  void drop_duplicate(JsonNode& parent) {
    for (auto item = parent.items.begin(); item != parent.items.end(); ++item) {
      if (item->key == pending_key_) {
        faults_.push_back({pending_line_, dotted_path() + ": given twice, first in line " +
                                              std::to_string(item->line) +
                                              "; expected each key once"});
        parent.items.erase(item);
        return;
      }
    }
  }

  bool open(JsonNode::Kind kind) {
    if (depth_ == kMaxDepth) {
      fail(position_.offset, "nested more than " + std::to_string(kMaxDepth) + " deep");
    }
    JsonNode node;
    node.kind = kind;
    place(std::move(node));
    ++depth_;
    return true;
  }

  bool close() {
    --depth_;
    return true;
  }

  const std::string& text_;
  const std::string& name_;
  const Position& position_;
  std::vector<Fault>& faults_;
  JsonNode root_;
  std::size_t depth_ = 0;  // of open lists and objects
  std::string pending_key_;
  int pending_line_ = 0;
};

template <class T>
bool parse_whole(const std::string& text, T& value) {
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  return error == std::errc{} && stop == end;
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
  std::string escaped =
      nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
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
  return builder.take();
}

JsonNode parse_scalar(const std::string& raw) {
  JsonNode node;
  node.text = raw;
  if (raw == "true" || raw == "false") {
    node.kind = JsonNode::Kind::boolean;
    node.boolean = raw == "true";
  } else if (parse_whole(raw, node.integer)) {
    node.kind = JsonNode::Kind::integer;
    node.number = static_cast<double>(node.integer);
  } else if (parse_whole(raw, node.number) && std::isfinite(node.number)) {
    node.kind = JsonNode::Kind::number;
  } else {
    node.kind = JsonNode::Kind::text;
  }
  return node;
}

}  // namespace transnormer
