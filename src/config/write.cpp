// A Config back into JSON, and two of them compared.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "config/listing.h"
#include "config/load.h"

namespace transnormer {
namespace {

const FieldRow* find_row(const std::vector<FieldRow>& rows, const std::string& key) {
  const auto row = std::find_if(rows.begin(), rows.end(),
                                [&](const FieldRow& candidate) { return candidate.key == key; });
  return row == rows.end() ? nullptr : &*row;
}

}  // namespace

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
  // The settings of an attention that is gone need no line: its `attention` has one.
  return changes;
}

}  // namespace transnormer
