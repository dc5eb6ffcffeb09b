// The files in configs/.
#include <map>

#include "config/names.h"
#include "config/support.h"
#include "util/file.h"

namespace transnormer {
namespace {

namespace fs = std::filesystem;

const fs::path kConfigs = fs::path(TRANSNORMER_SOURCE_DIR) / "configs";

Config shipped(const std::string& name) {
  return load_config(kConfigs / (name + ".json")).config;
}

// Those of scripts/study.sh, which name configs and what is compared.
bool is_study(const fs::path& file) {
  return file.parent_path() == kConfigs / "studies";
}

TEST(ShippedConfigs, AllLoadWithoutFaultOrWarning) {
  int count = 0;
  for (const auto& entry : fs::recursive_directory_iterator(kConfigs)) {
    if (entry.path().extension() == ".json" && !is_study(entry.path())) {
      EXPECT_TRUE(load_config(entry.path()).warnings.empty()) << entry.path();
      ++count;
    }
  }
  EXPECT_GE(count, 6);
}

TEST(ShippedConfigs, ReadTheirTextFromData) {
  const std::string data = (kConfigs.parent_path() / "data").lexically_normal().string();
  const std::map<std::string, std::string> train{
      {"quickstart", "/bible/train.txt"},
      {"tiny", "/fixture/train.txt"},
      {"wikitext2_t2", "/wikitext-2/wiki.train.tokens"},
      {"wikitext103_t1", "/wikitext-103/wiki.train.tokens"},
      {"wikitext103_t2", "/wikitext-103/wiki.train.tokens"},
      {"wikitext103_sp_t2", "/wikitext-103/wiki.train.tokens"}};
  for (const auto& [name, file] : train) {
    EXPECT_THAT(shipped(name).data.train, testing::ElementsAre(data + file));
  }
}

TEST(ShippedConfigs, KeepThePublishedRecipe) {
  for (const char* name : {"wikitext103_t1", "wikitext103_t2"}) {
    const Config c = shipped(name);
    EXPECT_EQ(c.run_name, name);
    EXPECT_EQ(to_string(c.model.variant), std::string(name).substr(12));
    EXPECT_EQ(c.model.layers, 6);
    EXPECT_EQ(c.model.dim, 512);
    EXPECT_EQ(c.model.heads, 8);
    EXPECT_EQ(c.model.vocab_size, 267744);
    EXPECT_EQ(c.model.dropout, 0.1);
    EXPECT_EQ(c.data.tokens_per_sample, 512);
    EXPECT_EQ(c.train.global_batch_size, 128);
    EXPECT_EQ(c.train.steps, 100000);
    EXPECT_EQ(c.schedule.name, ScheduleKind::inverse_sqrt);
    EXPECT_EQ(c.schedule.warmup_steps, 8000);
    EXPECT_EQ(c.schedule.warmup_init_lr, 1e-7);
    EXPECT_EQ(c.optimizer.lr, 5e-4);
    EXPECT_EQ(c.optimizer.rule.get<AdamWConfig>().betas, (std::array{0.9, 0.98}));
    EXPECT_EQ(c.optimizer.rule.get<AdamWConfig>().eps, 1e-8);
    EXPECT_EQ(c.optimizer.weight_decay, 0.01);
    EXPECT_EQ(c.optimizer.clip_norm, 0);
  }
  EXPECT_EQ(shipped("wikitext103_sp_t2").model.vocab_size, 50265);
  EXPECT_EQ(shipped("wikitext103_sp_t2").tokenizer.type, TokenizerType::sentencepiece);
  EXPECT_EQ(shipped("wikitext103_sp_t2").train.steps, 50000);
}

TEST(ShippedConfigs, ReferenceIsUpToDate) {
  const std::string page = read_file(kConfigs / "README.md");
  EXPECT_TRUE(page.ends_with("\n" + config_reference()))
      << "the tables in configs/README.md are not those of `transnormer config schema --markdown`";
}

}  // namespace
}  // namespace transnormer
