// A Config back into JSON, plain or with its origins, and two of them compared.
#include <algorithm>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "config/json_tree.h"
#include "config/listing.h"
#include "config/load.h"

namespace transnormer {
namespace {

std::vector<std::string> split(const std::string& key) {
  std::vector<std::string> parts;
  std::istringstream stream(key);
  for (std::string part; std::getline(stream, part, '.');) {
    parts.push_back(part);
  }
  return parts;
}

// Lines of nested JSON, written key by key.
class NestedWriter {
 public:
  void add(const std::string& dotted, const std::string& value, const std::string& comment) {
    std::vector<std::string> sections = split(dotted);
    const std::string key = sections.back();
    sections.pop_back();
    const auto common =
        std::mismatch(open_.begin(), open_.end(), sections.begin(), sections.end()).first;
    close_down_to(static_cast<std::size_t>(common - open_.begin()));
    while (open_.size() < sections.size()) {
      begin_item();
      text_ += '"' + sections[open_.size()] + "\": {";
      open_.push_back(sections[open_.size()]);
      first_ = true;
    }
    begin_item();
    text_ += '"' + key + "\": " + value;
    comment_ = comment;
  }

  [[nodiscard]] std::string finish() {
    close_down_to(0);
    end_line("");
    return text_ + "}\n";
  }

 private:
  [[nodiscard]] std::string indent() const { return std::string(2 * open_.size() + 2, ' '); }

  // Puts the comment of the last key behind `mark`, which ends that key's line.
  void end_line(const std::string& mark) {
    constexpr std::size_t kCommentColumn = 44;
    text_ += mark;
    if (!comment_.empty()) {
      const std::size_t length = text_.size() - text_.rfind('\n') - 1;
      text_ += std::string(length < kCommentColumn ? kCommentColumn - length : 1, ' ');
      text_ += "// " + comment_;
      comment_.clear();
    }
    text_ += '\n';
  }

  void begin_item() {
    end_line(first_ ? "" : ",");
    text_ += indent();
    first_ = false;
  }

  void close_down_to(std::size_t depth) {
    while (open_.size() > depth) {
      end_line("");
      open_.pop_back();
      text_ += indent() + "}";
    }
  }

  std::string text_ = "{";
  std::vector<std::string> open_;  // the sections that we are in
  std::string comment_;            // of the last key
  bool first_ = true;              // nothing stands in the innermost section yet
};

}  // namespace

std::string config_with_origins(const LoadedConfig& loaded) {
  NestedWriter writer;
  for (const FieldRow& row : list_fields(loaded.config)) {
    writer.add(row.key, row.value, printable(loaded.origins.at(row.key), false));
  }
  return writer.finish();
}

std::string config_to_json(const Config& config) {
  using Json = nlohmann::ordered_json;
  Json root;
  for (const FieldRow& row : list_fields(config)) {
    std::string pointer = "/" + row.key;
    std::replace(pointer.begin(), pointer.end(), '.', '/');
    root[Json::json_pointer(pointer)] = Json::parse(row.value);
  }
  return root.dump(2) + "\n";
}

std::vector<ConfigChange> config_changes(const Config& before, const Config& after) {
  const std::vector<FieldRow> old_rows = list_fields(before);
  const std::vector<FieldRow> new_rows = list_fields(after);
  std::vector<ConfigChange> changes;
  for (const FieldRow& row : new_rows) {
    const FieldRow* old = find_row(old_rows, row.key);
    const std::string value = old == nullptr ? "null" : old->value;
    if (value != row.value) {
      changes.push_back({row.key, value, row.value, row.on_resume});
    }
  }
  // The settings of an alternative that is gone need no line: its name has one.
  return changes;
}

}  // namespace transnormer
