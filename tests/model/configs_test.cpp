// The configs that the project ships make the models that they promise.
#include <gtest/gtest.h>

#include <filesystem>
#include <map>

#include "config/load.h"
#include "model/transnormer.h"
#include "model/weights.h"

namespace transnormer {
namespace {

std::int64_t parameters(const std::filesystem::path& file, std::int64_t vocab_size_if_open) {
  const Config config = load_config(file).config;
  const std::int64_t words =
      config.model.vocab_size > 0 ? config.model.vocab_size : vocab_size_if_open;
  const TransNormer model(config.model,
                          {.vocab_size = words, .max_positions = config.data.tokens_per_sample},
                          at::kMeta);
  std::int64_t sum = 0;
  for (const NamedTensor& named : named_tensors(model)) {
    sum += named.counted ? named.tensor.numel() : 0;
  }
  return sum;
}

TEST(Configs, AllMakeAModel) {
  const std::filesystem::path folder = std::filesystem::path(TRANSNORMER_SOURCE_DIR) / "configs";
  std::map<std::string, std::int64_t> counts;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
    const bool is_study = entry.path().parent_path() == folder / "studies";  // no config
    if (entry.path().extension() == ".json" && !is_study) {
      counts[entry.path().filename()] = parameters(entry.path(), 1000);
    }
  }
  EXPECT_GE(counts.size(), 6U);
  for (const auto& [name, count] : counts) {
    EXPECT_GT(count, 1000) << name;
  }
  EXPECT_EQ(counts.at("wikitext103_t1.json"), 155988540);
  EXPECT_EQ(counts.at("wikitext103_t2.json"), 155988540);
  EXPECT_EQ(counts.at("wikitext103_sp_t2.json"), 44639292);
  EXPECT_EQ(counts.at("wikitext103_softmax.json"), 156000256);
  EXPECT_EQ(counts.at("wikitext103_linear.json"), 156000256);
  EXPECT_EQ(counts.at("wikitext103_performer.json"), 156000256);
  EXPECT_EQ(counts.at("wikitext103_rela.json"), 156006400);
  EXPECT_EQ(counts.at("wikitext103_flash_quad.json"), 153514752);
  EXPECT_EQ(counts.at("wikitext103_flash.json"), 153519872);
  EXPECT_EQ(counts.at("wikitext103_transformer_ls.json"), 159461904);
}

}  // namespace
}  // namespace transnormer
