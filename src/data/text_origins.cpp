#include "data/text_origins.h"

#include <array>
#include <string_view>
#include <system_error>

namespace transnormer {
namespace {

namespace fs = std::filesystem;

struct Origin {
  std::string_view folder;  // of data/
  std::string_view hint;
};
constexpr std::array kOrigins{
    Origin{"wikitext-103", "; scripts/get_wikitext.sh fetches it"},
    Origin{"wikitext-2",
           "; no script fetches WikiText-2: put its wiki.*.tokens there, as data/README.md says"},
    Origin{"bible", "; scripts/quickstart.sh makes it, by scripts/get_bible.py"}};

}  // namespace

std::string where_from(const fs::path& missing) {
  fs::path above = missing.parent_path();
  for (; above.has_relative_path(); above = above.parent_path()) {
    for (const Origin& origin : kOrigins) {
      if (above.filename() == origin.folder) {
        return std::string(origin.hint);
      }
    }
    std::error_code unknown;
    const fs::path page = above / "README.md";
    if (above.filename() == "data" && fs::is_regular_file(page, unknown)) {
      return "; " + page.string() + " says where its texts come from";
    }
  }
  return "";
}

}  // namespace transnormer
