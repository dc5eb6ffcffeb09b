#include "config/reader.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <optional>
#include <string_view>
#include <utility>

#include "config/fields.h"
#include "config/json_tree.h"
#include "config/listing.h"
#include "util/error.h"
#include "util/home.h"
#include "util/standard_input.h"
#include "util/units.h"

namespace transnormer {
namespace {

using Kind = JsonNode::Kind;

constexpr std::int64_t kMostUnknown = 20;  // keys of a section that are told one by one
constexpr const char* kNoHome =
    "a path that does not start at \"~\", as no home directory is known";
constexpr std::size_t kMostPaths = 100'000;  // of one key; a glob names more

class LayerReader : public FieldVisitor {
 public:
  LayerReader(const ConfigLayer& layer, ReadState& state)
      : layer_(layer), state_(state), faults_(layer.faults) {
    scopes_.push_back({.node = &layer.root, .path = ""});
  }

  void finish() {
    close_scope();
    std::stable_sort(faults_.begin(), faults_.end(),
                     [](const Fault& a, const Fault& b) { return a.line < b.line; });
    for (const Fault& fault : faults_) {
      state_.faults.push_back(place(fault.line) + ": " + fault.message);
    }
  }

  void flag(const Field& field, bool& value) override {
    const std::optional<JsonNode> node = take_scalar(field);
    if (!node) {
      return;
    }
    if (node->kind != Kind::boolean) {
      return expected(field, "true or false", *node);
    }
    value = node->boolean;
  }

  void integer(const Field& field, std::int64_t& value, const IntegerRange& range) override {
    const std::optional<JsonNode> node = take_scalar(field);
    if (!node) {
      return;
    }
    std::optional<std::int64_t> read;
    if (node->kind == Kind::integer) {
      read = node->integer;
    } else if (node->kind == Kind::number && std::nearbyint(node->number) == node->number &&
               std::abs(node->number) < 0x1p63) {
      read = static_cast<std::int64_t>(node->number);  // 8.0, 1e5
    }
    if (!read || *read < range.min || *read > range.max) {
      return expected(field, describe(range), *node);
    }
    value = *read;
  }

  void number(const Field& field, double& value, const NumberRange& range) override {
    const std::optional<JsonNode> node = take_scalar(field);
    if (!node) {
      return;
    }
    if (!in_range(*node, range)) {
      return expected(field, describe(range, finite_noun(*node)), *node);
    }
    value = node->number;
  }

  void number_pair(const Field& field, std::array<double, 2>& value,
                   const NumberRange& range) override {
    const std::optional<JsonNode> node = take_list(field);
    if (!node) {
      return;
    }
    const std::string wanted = "a list of two numbers, each " + describe(range, "");
    if (node->kind != Kind::list) {
      return expected(field, wanted, *node);
    }
    if (node->items.size() != 2) {
      return expected(field, wanted, *node, " of " + std::to_string(node->items.size()));
    }
    for (const JsonNode& item : node->items) {
      if (!in_range(item, range)) {
        return expected(field, wanted, item);
      }
    }
    value = {node->items[0].number, node->items[1].number};
  }

  void text(const Field& field, std::string& value, TextKind kind) override {
    const JsonNode* node = take(field);
    if (node == nullptr) {
      return;
    }
    if (!is_text(*node)) {
      return expected(field, describe(kind), *node);
    }
    if (kind == TextKind::directory && node->text.empty()) {
      return expected(field, describe(kind), *node);
    }
    if (kind != TextKind::name && is_homeless(node->text)) {
      return expected(field, kNoHome, *node);
    }
    const std::string read = kind == TextKind::name ? node->text : absolute(node->text);
    if (const std::string how = misspelled(read, kind); !how.empty()) {
      return expected(field, (kind == TextKind::name ? "a name " : "a path ") + how, *node);
    }
    value = read;
  }

  void paths(const Field& field, std::vector<std::string>& value) override {
    const std::optional<JsonNode> node = take_list(field);
    if (!node) {
      return;
    }
    static const std::string kWanted = "a path, a glob or a list of them";
    std::vector<std::string> read;
    if (is_text(*node)) {
      if (!node->text.empty()) {  // "" takes the split away
        read.push_back(node->text);
      }
    } else if (node->items.size() > kMostPaths) {
      return expected(field, "at most " + format_count(kMostPaths) + " paths or globs", *node,
                      " of " + format_count(std::ssize(node->items)));
    } else if (node->kind == Kind::list) {
      for (const JsonNode& item : node->items) {
        if (item.kind != Kind::text || item.text.empty()) {
          return expected(field, kWanted, item);
        }
        read.push_back(item.text);
      }
    } else {
      return expected(field, kWanted, *node);
    }
    for (std::string& path : read) {
      if (is_homeless(path)) {
        return expected(field, kNoHome, *node);
      }
      path = path == kStandardInput ? path : absolute_pattern(path);
      if (const std::string how = misspelled(path, TextKind::file); !how.empty()) {
        return expected(field, kWanted + " " + how, *node);
      }
    }
    value = std::move(read);
  }

  void texts(const Field& field, std::vector<std::string>& value) override {
    const std::optional<JsonNode> node = take_list(field);
    if (!node) {
      return;
    }
    static const std::string kWanted = "a text or a list of them";
    std::vector<std::string> read;
    if (is_text(*node)) {
      read.push_back(node->text);
    } else if (node->kind == Kind::list) {
      for (const JsonNode& item : node->items) {
        if (item.kind != Kind::text) {
          return expected(field, kWanted, item);
        }
        read.push_back(item.text);
      }
    } else {
      return expected(field, kWanted, *node);
    }
    std::erase(read, "");  // "" takes all away
    for (const std::string& text : read) {
      if (!is_utf8(text)) {
        return expected(field, kWanted + " in UTF-8", *node);
      }
    }
    value = std::move(read);
  }

  void choice(const Field& field, const Choice& value) override {
    const JsonNode* node = take(field);
    if (node == nullptr) {
      return;
    }
    if (is_text(*node)) {
      for (std::size_t i = 0; i < value.names.size(); ++i) {
        if (node->text == value.names[i]) {
          return value.select(i);
        }
      }
    }
    expected(field, describe(value.names), *node, nearest_choice(*node, value.names));
  }

  void section(const Field& field, const std::function<void()>& body) override {
    const JsonNode* node = take(field);
    if (node == nullptr) {
      return;
    }
    if (node->kind != Kind::object) {
      return expected(field, "an object of settings", *node);
    }
    scopes_.push_back({.node = node, .path = path_of(field.key)});
    body();
    close_scope();
  }

  void alternatives(const Field& tag, UnionValue& value) override {
    if (const JsonNode* node = take(tag); node != nullptr) {
      if (!is_text(*node) || value.alternatives().find(node->text) == nullptr) {
        const std::vector<const char*> names = value.alternatives().names();
        expected(tag, describe(names), *node, nearest_choice(*node, names));
        state_.faulty.insert(scopes_.back().path);
        scopes_.back().complete = false;  // which settings belong here is not known
        return;
      }
      select(node->text, value);
    }
    scopes_.back().chosen = &value;
    value.visit(*this);
  }

 private:
  struct Scope {
    const JsonNode* node;
    std::string path;  // dotted; empty at the top
    std::vector<std::string> known = {};
    const UnionValue* chosen = nullptr;  // whose settings stand here, if any do
    bool complete = true;                // all that belongs here was asked for
  };

  [[nodiscard]] std::string path_of(const std::string& key) const {
    return scopes_.back().path.empty() ? key : scopes_.back().path + "." + key;
  }

  [[nodiscard]] std::string place(int line) const {
    return line > 0 ? layer_.name + ":" + std::to_string(line) : layer_.name;
  }

  // The field's node in the present scope; recorded as the field's origin.
  const JsonNode* take(const Field& field) {
    Scope& scope = scopes_.back();
    scope.known.emplace_back(field.key);
    const JsonNode* node = scope.node->find(field.key);
    if (node != nullptr) {
      state_.origins[path_of(field.key)] = {layer_.name, place(node->line)};
    }
    return node;
  }

  std::optional<JsonNode> take_scalar(const Field& field) {
    const JsonNode* node = take(field);
    if (node == nullptr) {
      return std::nullopt;
    }
    return node->kind == Kind::raw ? parse_scalar(node->text) : *node;
  }

  // A `--set` writes lists as JSON; anything else is a single string.
  std::optional<JsonNode> take_list(const Field& field) {
    const JsonNode* node = take(field);
    if (node == nullptr) {
      return std::nullopt;
    }
    if (node->kind == Kind::raw && node->text.starts_with('[')) {
      try {
        return parse_json(node->text, "value", faults_);
      } catch (const UserError&) {
        return *node;  // reported as not being a list, or taken as a glob
      }
    }
    return *node;
  }

  static bool is_text(const JsonNode& node) {
    return node.kind == Kind::text || node.kind == Kind::raw;
  }

  static bool in_range(const JsonNode& node, const NumberRange& range) {
    return (node.kind == Kind::integer || node.kind == Kind::number) &&
           contains(range, node.number);
  }

  static const char* finite_noun(const JsonNode& node) {
    const bool infinite =
        node.kind == Kind::text && !std::isfinite(std::strtod(node.text.c_str(), nullptr));
    return infinite ? "a finite number" : "a number";
  }

  static bool is_homeless(const std::string& path) {
    return starts_at_home(path) && home_directory().empty();
  }

  // The directory that a path starts from, and the path from there.
  struct Place {
    std::filesystem::path directory;
    std::string path;
  };
  [[nodiscard]] Place place_of(const std::string& path) const {
    if (starts_at_home(path)) {
      return {home_directory(), path.substr(std::min(path.find_first_not_of('/', 1), path.size()))};
    }
    return {layer_.directory, path};
  }

  [[nodiscard]] std::string absolute(const std::string& path) const {
    const Place place = place_of(path);
    return path.empty() ? path : (place.directory / place.path).lexically_normal().string();
  }

  // The same for a glob. The directory is meant to the letter, whatever characters it has.
  [[nodiscard]] std::string absolute_pattern(const std::string& pattern) const {
    static constexpr std::string_view kMagic = "*?[";
    if (pattern.find_first_of(kMagic) == std::string::npos) {
      return absolute(pattern);
    }
    const Place place = place_of(pattern);
    std::string directory;
    for (const char c : place.directory.string()) {
      directory += kMagic.find(c) != std::string_view::npos || c == '\\' ? "\\" : "";
      directory += c;
    }
    return (std::filesystem::path(directory) / place.path).lexically_normal().string();
  }

  // What was named of the former alternative is void.
  void select(const std::string& name, UnionValue& value) {
    if (name == value.name()) {
      return;
    }
    for (const std::string& key : setting_keys(value)) {
      state_.origins.erase(path_of(key));
    }
    value.select(name);
  }

  static std::string nearest_choice(const JsonNode& node, const std::vector<const char*>& names) {
    if (!is_text(node)) {
      return "";
    }
    return hint_of_choice(node.text, std::vector<std::string>(names.begin(), names.end()));
  }

  void expected(const Field& field, const std::string& wanted, const JsonNode& got,
                const std::string& hint = "") {
    const std::string path = path_of(field.key);
    const std::string unit = field.unit[0] != '\0' ? std::string(" (") + field.unit + ")" : "";
    // A value that stood inside a list, or came from `--set`, has no line of its own.
    const JsonNode* own = scopes_.back().node->find(field.key);
    faults_.push_back(
        {own->line, path + ": expected " + wanted + unit + ", got " + got.shown() + hint});
    state_.faulty.insert(path);
  }

  // Reports what the scope's object holds beside the keys that were asked for.
  void close_scope() {
    const Scope scope = std::move(scopes_.back());
    scopes_.pop_back();
    if (!scope.complete) {
      return;
    }
    std::int64_t unknown = 0;
    int last_line = 0;
    for (const JsonNode& item : scope.node->items) {
      if (std::find(scope.known.begin(), scope.known.end(), item.key) != scope.known.end() ||
          (scope.path.empty() && is_file_key(item.key))) {
        continue;
      }
      last_line = item.line;
      if (++unknown <= kMostUnknown) {
        faults_.push_back({item.line, describe_unknown_key(scope.path, item.key, scope.chosen)});
      }
    }
    if (unknown > kMostUnknown) {
      faults_.push_back({last_line, (scope.path.empty() ? "" : scope.path + ": ") + "and " +
                                        format_count(unknown - kMostUnknown) +
                                        " more unknown keys"});
    }
  }

  const ConfigLayer& layer_;
  ReadState& state_;
  std::vector<Fault> faults_;
  std::vector<Scope> scopes_;
};

}  // namespace

void read_layer(const ConfigLayer& layer, Config& config, ReadState& state) {
  LayerReader reader(layer, state);
  visit_fields(config, reader);
  reader.finish();
}

bool is_file_key(const std::string& key) {
  return key == "include" || key == "$schema";
}

}  // namespace transnormer
