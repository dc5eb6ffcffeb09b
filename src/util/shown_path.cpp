#include "util/shown_path.h"

#include <string_view>
#include <system_error>

namespace transnormer {
namespace fs = std::filesystem;

std::string shown_path(const fs::path& path, std::size_t most) {
  std::string shown = path.string();
  std::error_code unknown;
  const fs::path here = fs::current_path(unknown);
  if (!unknown && path.is_absolute()) {
    const std::string near = path.lexically_relative(here).string();
    shown = near.empty() || near.size() >= shown.size() ? shown : near;
  }
  if (shown.size() <= most) {
    return shown;
  }
  constexpr std::string_view kMark = "[..]";
  const std::size_t from = shown.find('/', shown.size() - (most - kMark.size()));
  return std::string(kMark) + (from == std::string::npos
                                   ? shown.substr(shown.size() - (most - kMark.size()))
                                   : shown.substr(from));
}

}  // namespace transnormer
