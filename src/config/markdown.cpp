#include "config/markdown.h"

#include <algorithm>
#include <vector>

#include "config/listing.h"
#include "config/load.h"

namespace transnormer {
namespace {

std::string unlike_defaults(const Config& config) {
  const std::vector<FieldRow> defaults = list_all_fields();
  std::string lines;
  for (const FieldRow& row : list_fields(config)) {
    const bool is_default = std::ranges::any_of(defaults, [&row](const FieldRow& other) {
      return other.key == row.key && other.alternative == row.alternative &&
             other.value == row.value;
    });
    if (!is_default) {
      lines += row.key + " = " + row.value + "\n";
    }
  }
  return lines;
}

// A fence longer than any in the text.
std::string code_block(const std::string& language, const std::string& text) {
  std::string fence = "```";
  while (text.find(fence) != std::string::npos) {
    fence += '`';
  }
  return fence + language + "\n" + text + fence + "\n";
}

}  // namespace

std::string config_markdown(const Config& config) {
  return "Unlike the defaults:\n\n" + code_block("", unlike_defaults(config)) +
         "\nThe resolved config:\n\n" + code_block("json", config_to_json(config));
}

}  // namespace transnormer
