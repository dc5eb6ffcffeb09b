#include "data/text_origins.h"

#include "data/support.h"
#include "data/text_files.h"

namespace transnormer {
namespace {

using testing::HasSubstr;

TEST(TextOrigins, NameTheScriptThatMakesATextOfOurs) {
  const auto fault = [](const std::string& entry) {
    return test::fault_of([&] { static_cast<void>(find_text_files({entry}, "data.train")); });
  };
  EXPECT_EQ(fault("/no/data/wikitext-103/wiki.train.tokens"),
            "data.train: /no/data/wikitext-103/wiki.train.tokens: there is no such file; "
            "scripts/get_wikitext.sh fetches it");
  EXPECT_THAT(fault("/no/wikitext-103/*.tokens"), HasSubstr("scripts/get_wikitext.sh fetches it"));
  EXPECT_THAT(fault("/no/data/wikitext-2/wiki.train.tokens"), HasSubstr("as data/README.md says"));
  EXPECT_THAT(fault("/no/data/bible/train.txt"), HasSubstr("scripts/get_bible.py"));
  EXPECT_EQ(fault("/no/data/mine/train.txt"),
            "data.train: /no/data/mine/train.txt: there is no such file");
}

TEST(TextOrigins, PointToThePageOfTheDataFolder) {
  const test::TemporaryDirectory dir;
  std::filesystem::create_directories(dir / "data");
  test::put(dir / "data/README.md", "");
  EXPECT_EQ(where_from(dir / "data/new/a.txt"),
            "; " + (dir / "data/README.md").string() + " says where its texts come from");
  EXPECT_EQ(where_from(dir / "elsewhere/a.txt"), "");
}

// What the code says must be there.
TEST(TextOrigins, NameScriptsAndFoldersThatAreThere) {
  const std::filesystem::path root = TRANSNORMER_SOURCE_DIR;
  const std::string page = read_file(root / "data/README.md");
  for (const char* folder : {"wikitext-103", "wikitext-2", "bible"}) {
    EXPECT_THAT(page, HasSubstr("`" + std::string(folder) + "/`"));
    const std::string hint = where_from(root / "data" / folder / "train.txt");
    const std::size_t script = hint.find("scripts/");
    if (script != std::string::npos) {
      EXPECT_TRUE(std::filesystem::exists(
          root / hint.substr(script, hint.find_first_of(" ,", script) - script)))
          << hint;
    }
  }
}

}  // namespace
}  // namespace transnormer
