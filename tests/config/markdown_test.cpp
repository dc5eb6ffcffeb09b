#include "config/markdown.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "config/load.h"

namespace transnormer {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

TEST(ConfigMarkdown, BeginsWithWhatIsUnlikeTheDefaultsAndEndsWithAllOfIt) {
  const Config config =
      parse_config(
          R"({"model": {"variant": "custom", "dim": 256, "early": {"attention": "sparse"}}})",
          "test", {"optimizer.lr=1e-3"})
          .config;
  const std::string text = config_markdown(config);
  EXPECT_THAT(text, StartsWith("Unlike the defaults:\n\n```\nrun_name = \"test\"\n"
                               "model.variant = \"custom\"\nmodel.dim = 256\n"
                               "model.early.attention = \"sparse\"\ndata.cache_dir = "));
  EXPECT_THAT(text, HasSubstr("\noptimizer.lr = 0.001\n```\n"));
  EXPECT_THAT(text, HasSubstr("```json\n" + config_to_json(config) + "```\n"));
}

TEST(ConfigMarkdown, NoTextOfTheConfigEndsItsBlock) {
  Config config;
  config.run_name = "a```b";
  EXPECT_THAT(config_markdown(config), HasSubstr("````json\n{"));
}

}  // namespace
}  // namespace transnormer
