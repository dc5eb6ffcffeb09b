#include "analyze/answer.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "util/units.h"

namespace transnormer {
namespace {

std::string csv_cell(const nlohmann::ordered_json& value) {
  if (value.is_null()) {
    return "";
  }
  return value.is_string() ? value.get<std::string>() : value.dump();
}

std::string text_cell(const nlohmann::ordered_json& value) {
  if (value.is_null()) {
    return "-";
  }
  if (value.is_boolean()) {
    return value.get<bool>() ? "yes" : "no";
  }
  if (value.is_number_float()) {
    return format_significant(value.get<double>());
  }
  return csv_cell(value);
}

std::vector<std::string> names_of(const nlohmann::ordered_json& rows) {
  std::vector<std::string> names;
  if (!rows.empty()) {
    for (const auto& [name, value] : rows.front().items()) {
      names.push_back(name);
    }
  }
  return names;
}

}  // namespace

std::string to_csv(const nlohmann::ordered_json& rows) {
  std::string csv;
  const auto add_line = [&csv](const std::vector<std::string>& cells) {
    for (std::size_t i = 0; i < cells.size(); ++i) {
      csv += (i == 0 ? "" : ",") + cells[i];
    }
    csv += '\n';
  };
  add_line(names_of(rows));
  for (const auto& row : rows) {
    std::vector<std::string> cells;
    for (const auto& value : row) {
      cells.push_back(csv_cell(value));
    }
    add_line(cells);
  }
  return csv;
}

std::string to_text(const nlohmann::ordered_json& rows) {
  std::vector<std::vector<std::string>> lines{names_of(rows)};
  for (const auto& row : rows) {
    lines.emplace_back();
    for (const auto& value : row) {
      lines.back().push_back(text_cell(value));
    }
  }
  std::vector<std::size_t> widths(lines.front().size());
  for (const auto& line : lines) {
    for (std::size_t i = 0; i < line.size(); ++i) {
      widths[i] = std::max(widths[i], line[i].size());
    }
  }
  std::string text;
  for (const auto& line : lines) {
    for (std::size_t i = 0; i < line.size(); ++i) {
      text += (i == 0 ? "" : "  ") + std::string(widths[i] - line[i].size(), ' ') + line[i];
    }
    text += '\n';
  }
  return text;
}

nlohmann::ordered_json number(double value) {
  return std::isfinite(value) ? nlohmann::ordered_json(value) : nlohmann::ordered_json();
}

}  // namespace transnormer
