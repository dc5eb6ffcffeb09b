#include "analyze/iterations.h"

#include <limits>
#include <nlohmann/json.hpp>
#include <string_view>

#include "util/file.h"
#include "util/foreign_json.h"

namespace transnormer {

std::optional<std::map<std::string, double>> relative_deviations(
    const std::filesystem::path& metrics) {
  const std::string text = read_regular_file(metrics, std::numeric_limits<std::int64_t>::max());
  std::string_view rest = text;
  while (!rest.empty()) {  // from the last line on
    rest.remove_suffix(rest.ends_with('\n') ? 1 : 0);
    const std::size_t begin = rest.rfind('\n') == std::string_view::npos ? 0 : rest.rfind('\n') + 1;
    const std::string_view line = rest.substr(begin);
    rest = rest.substr(0, begin);
    if (line.find("\"relative_std\"") == std::string_view::npos) {
      continue;
    }
    const nlohmann::json parsed = parse_foreign_json(line);
    if (!parsed.is_object() || !parsed.contains("gradients") ||
        !parsed.at("gradients").is_object()) {
      continue;
    }
    std::map<std::string, double> found;
    for (const auto& [group, stats] : parsed.at("gradients").items()) {
      if (stats.is_object() && stats.contains("relative_std")) {
        const auto& value = stats.at("relative_std");
        found[group] =
            value.is_number() ? value.get<double>() : std::numeric_limits<double>::quiet_NaN();
      }
    }
    if (!found.empty()) {
      return found;
    }
  }
  return std::nullopt;
}

}  // namespace transnormer
