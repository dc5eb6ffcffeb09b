#include "config/load.h"

#include <cstdlib>
#include <optional>

#include "config/names.h"
#include "config/support.h"

namespace transnormer {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TEST(ConfigLayers, LaterIncludesWinAndTheFileWinsOverAll) {
  const TemporaryDirectory dir;
  dir.write("a.json", R"({"model": {"layers": 1, "dim": 64, "heads": 1, "dropout": 0.5}})");
  dir.write("b.json", R"({"model": {"layers": 2, "dim": 128}})");
  const auto file =
      dir.write("c.json", R"({"include": ["a.json", "b.json"], "model": {"layers": 3}})");
  const LoadedConfig loaded = load_config(file, {"model.dropout=0.25"});
  EXPECT_EQ(loaded.config.model.layers, 3);
  EXPECT_EQ(loaded.config.model.dim, 128);
  EXPECT_EQ(loaded.config.model.heads, 1);
  EXPECT_EQ(loaded.config.model.dropout, 0.25);
  EXPECT_EQ(loaded.origins.at("model.layers"), file.string());
  EXPECT_EQ(loaded.origins.at("model.dim"), (dir.path() / "b.json").string());
  EXPECT_EQ(loaded.origins.at("model.heads"), (dir.path() / "a.json").string());
  EXPECT_EQ(loaded.origins.at("model.dropout"), "--set");
  EXPECT_EQ(loaded.origins.at("train.steps"), "default");
}

TEST(ConfigLayers, TheLastOfSeveralSetsOfAKeyWins) {
  EXPECT_EQ(config_of("{}", {"model.layers=3", "model.layers=4"}).model.layers, 4);
}

TEST(ConfigLayers, AnIncludeIsRelativeToTheFileThatHoldsIt) {
  const TemporaryDirectory dir;
  dir.write("base/deep/leaf.json", R"({"train": {"seed": 7}})");
  dir.write("base/middle.json", R"({"include": "deep/leaf.json"})");
  const auto file = dir.write("runs/top.json", R"({"include": "../base/middle.json"})");
  EXPECT_EQ(load_config(file).config.train.seed, 7);
}

TEST(ConfigLayers, AFileMayBeIncludedTwiceButNotByItself) {
  const TemporaryDirectory dir;
  dir.write("leaf.json", R"({"train": {"seed": 7}})");
  dir.write("left.json", R"({"include": "leaf.json"})");
  dir.write("right.json", R"({"include": "leaf.json"})");
  const auto diamond = dir.write("top.json", R"({"include": ["left.json", "right.json"]})");
  EXPECT_EQ(load_config(diamond).config.train.seed, 7);

  dir.write("one.json", R"({"include": "two.json"})");
  const auto two = dir.write("two.json", R"({"include": "./one.json"})");
  EXPECT_THAT(faults_of_file(two), ElementsAre(HasSubstr("expected no cycle")));
}

TEST(ConfigLayers, FaultsOfAllFilesComeTogether) {
  const TemporaryDirectory dir;
  dir.write("broken.json", "{\n  \"model\": {,}\n}");
  dir.write("wrong.json", R"({"model": {"layers": "six"}})");
  const auto file =
      dir.write("top.json", R"({"include": ["broken.json", "wrong.json", "gone.json"], "zzz": 1})");
  EXPECT_THAT(faults_of_file(file),
              testing::UnorderedElementsAre(
                  AllOf(HasSubstr("broken.json:2:13: "), HasSubstr("not valid JSON")),
                  AllOf(HasSubstr("gone.json"), HasSubstr("No such file")),
                  AllOf(HasSubstr("wrong.json:1: model.layers"), HasSubstr("\"six\"")),
                  AllOf(HasSubstr("top.json:1: zzz"), HasSubstr("unknown key"))));
}

TEST(ConfigLayers, AnIncludeMustBeAPathOrAList) {
  const TemporaryDirectory dir;
  EXPECT_THAT(faults_of_file(dir.write("a.json", R"({"include": 3})")),
              ElementsAre(HasSubstr("a.json:1: include: expected the path of a config")));
  EXPECT_THAT(faults_of_file(dir.write("b.json", R"({"include": ["a", {}]})")),
              testing::Contains(HasSubstr("got an object")));
}

TEST(ConfigPaths, StartFromTheFileThatHoldsThem) {
  const TemporaryDirectory dir;
  dir.write("base/base.json",
            R"({"data": {"train": "t.txt", "valid": ["v/*.txt", "/abs/w.txt"]},
                "tokenizer": {"path": "../dict.txt"}})");
  const auto file = dir.write("top/top.json", R"({"include": "../base/base.json",
                                   "data": {"test": "./x/../test.txt", "cache_dir": "cache"}})");
  const Config config = load_config(file).config;
  const std::string root = dir.path().string();
  EXPECT_THAT(config.data.train, ElementsAre(root + "/base/t.txt"));
  EXPECT_THAT(config.data.valid, ElementsAre(root + "/base/v/*.txt", "/abs/w.txt"));
  EXPECT_THAT(config.data.test, ElementsAre(root + "/top/test.txt"));
  EXPECT_EQ(config.data.cache_dir, root + "/top/cache");
  EXPECT_EQ(config.tokenizer.path, root + "/dict.txt");
}

TEST(ConfigPaths, OfSetsAndTheDefaultCacheStartFromTheWorkingDirectory) {
  const TemporaryDirectory dir;
  const auto file = dir.write("top.json", R"({"data": {"train": "t.txt"}})");
  const std::string here = std::filesystem::current_path().string();
  const Config config = load_config(file, {"data.train=mine.txt"}).config;
  EXPECT_THAT(config.data.train, ElementsAre(here + "/mine.txt"));
  EXPECT_EQ(config.data.cache_dir, here + "/runs/cache");
  EXPECT_EQ(config.tokenizer.path, "");
}

TEST(ConfigPaths, MayStartAtTheHomeDirectory) {
  const TemporaryDirectory dir;
  const std::string home = (dir.path() / "me [1]").string();
  const std::optional<std::string> before =
      getenv("HOME") != nullptr ? std::optional<std::string>(getenv("HOME")) : std::nullopt;
  setenv("HOME", home.c_str(), 1);
  dir.write("me [1]/base.json", R"({"data": {"test": "of_base.txt"}})");
  const auto file = dir.write("top.json", R"({"include": "~/base.json",
      "data": {"train": ["~/a.txt", "~/b*.txt", "./~", "~you/c.txt"], "cache_dir": "~//x"}})");
  const Config config = load_config(file, {"tokenizer.path=~/d.txt", "data.valid=~/v.txt"}).config;
  before ? setenv("HOME", before->c_str(), 1) : unsetenv("HOME");
  const std::string root = dir.path().string();
  EXPECT_THAT(config.data.train, ElementsAre(home + "/a.txt", root + R"(/me \[1]/b*.txt)",
                                             root + "/~", root + "/~you/c.txt"));
  EXPECT_THAT(config.data.valid, ElementsAre(home + "/v.txt"));
  EXPECT_THAT(config.data.test, ElementsAre(home + "/of_base.txt"));
  EXPECT_EQ(config.tokenizer.path, home + "/d.txt");
  EXPECT_EQ(config.data.cache_dir, home + "/x");
}

TEST(ConfigLayers, ASetTakesAnObjectForASectionAndForAUnion) {
  const Config config = config_of(
      "{}", {R"(model={"variant": "custom", "layers": 3})",
             R"(model.early={"attention": "diag", "block": 32})", R"(data.train={a,b}.txt)"});
  EXPECT_EQ(config.model.early.get<DiagAttentionConfig>().block, 32);
  EXPECT_EQ(config.model.layers, 3);
  EXPECT_THAT(config.data.train, ElementsAre(testing::EndsWith("/{a,b}.txt")));
  EXPECT_THAT(faults_of("{}", {"model.layers={}"}), ElementsAre(HasSubstr("model.layers")));
}

TEST(ConfigPaths, AGlobMeansTheFilesAndNeverTheDirectory) {
  const TemporaryDirectory dir;
  const auto file = dir.write(R"(odd [1]\?/top.json)",
                              R"({"data": {"train": "../x/*.txt", "valid": ["a?.txt", "b.txt"],
                                           "test": "/abs[1]/*.txt"}})");
  const Config config = load_config(file).config;
  const std::string root = dir.path().string();
  EXPECT_THAT(config.data.train, ElementsAre(root + "/x/*.txt"));
  EXPECT_THAT(config.data.valid,
              ElementsAre(root + R"(/odd \[1]\\\?/a?.txt)", root + R"(/odd [1]\?/b.txt)"));
  EXPECT_THAT(config.data.test, ElementsAre("/abs[1]/*.txt"));
  const Config again = parse_config(config_to_json(config), "other.json").config;
  EXPECT_EQ(again.data, config.data);
}

TEST(RunName, IsTheStemOfTheFileUnlessTold) {
  const TemporaryDirectory dir;
  const auto file = dir.write("my.first.json", "{}");
  EXPECT_EQ(load_config(file).config.run_name, "my.first");
  EXPECT_EQ(load_config(file, {"run_name=other"}).config.run_name, "other");
  EXPECT_EQ(load_config(file, {"run_name={a}"}).config.run_name, "{a}");
}

TEST(RunName, MustBeAbleToNameADirectory) {
  for (const char* name : {"a/b", "..", "a\\nb"}) {
    EXPECT_THAT(faults_of(std::string(R"({"run_name": ")") + name + "\"}"),
                ElementsAre(HasSubstr("run_name: expected a name")))
        << name;
  }
}

TEST(RunName, FromTheFileIsCheckedAsAGivenOne) {
  const TemporaryDirectory dir;
  for (const std::string& name :
       {std::string("...json"), std::string("..json"), std::string("a\nb.json"),
        std::string("\xff.json"), std::string(201, 'x') + ".json"}) {
    const auto file = dir.write(name, "{}");
    EXPECT_THAT(faults_of_file(file),
                ElementsAre(AllOf(HasSubstr("run_name: not set"), HasSubstr("--set run_name="))))
        << name;
    EXPECT_EQ(load_config(file, {"run_name=good"}).config.run_name, "good");
  }
}

TEST(ConfigFile, ThatHasManyFaultsTellsTheFirstAndHowManyThereAre) {
  std::string keys;
  std::string twice;
  for (int i = 0; i < 200000; ++i) {
    keys += (i == 0 ? "\"k" : ", \"k") + std::to_string(i) + "\": 1";
    twice += i == 0 ? R"("dim": 64)" : R"(, "dim": 64)";
  }
  const std::vector<std::string> unknown = faults_of("{" + keys + R"(, "model": {)" + keys + "}}");
  ASSERT_EQ(unknown.size(), 42U);
  EXPECT_THAT(unknown, testing::Contains(HasSubstr("model.k0: unknown key")));
  EXPECT_THAT(unknown, testing::Contains(HasSubstr("x.json:1: and 199,980 more unknown keys")));
  EXPECT_THAT(unknown, testing::Contains(HasSubstr("model: and 199,980 more unknown keys")));

  const std::vector<std::string> duplicates = faults_of("{\"model\": {" + twice + "}}");
  ASSERT_EQ(duplicates.size(), 2U);  // the same line again and again, then how many more
  std::vector<std::string> sets(10000, "model={\"dim\": 64}");
  for (int i = 0; i < 200; ++i) {
    sets.push_back("model.layers=x" + std::to_string(i));
  }
  const std::vector<std::string> of_sets = faults_of("{}", sets);
  ASSERT_EQ(of_sets.size(), 101U);
  EXPECT_EQ(of_sets.back(), "and 100 more faults");
}

TEST(ConfigFile, ThatIsMissingOrNoObjectIsAFault) {
  EXPECT_THAT(faults_of_file("/nowhere/x.json"),
              ElementsAre(AllOf(HasSubstr("/nowhere/x.json"), HasSubstr("No such file"))));
  EXPECT_THAT(faults_of("[]"), ElementsAre(HasSubstr("x.json: expected an object")));
  EXPECT_THAT(faults_of(""), ElementsAre(HasSubstr("x.json:1:1: not valid JSON")));
}

TEST(ConfigFile, MayHoldCommentsAndASchemaForEditors) {
  const Config config = config_of(R"({
    // a comment
    "$schema": "config.schema.json", /* another */
    "model": {"layers": 2}
  })");
  EXPECT_EQ(config.model.layers, 2);
}

TEST(ConfigFile, NeedsNoKeyAtAll) {
  Config expected;
  expected.run_name = "x";
  expected.data.cache_dir = (std::filesystem::current_path() / "runs/cache").string();
  EXPECT_EQ(config_of("{}"), expected);
  EXPECT_EQ(config_of(R"({"model": {}})"), expected);
}

TEST(LineEnds, AreKeptWithBytePairsUnlessNamed) {
  const LoadedConfig kept = parse_config(R"({"tokenizer": {"type": "bpe"}})", "x.json");
  EXPECT_EQ(kept.config.data.line_end, LineEnd::keep);
  EXPECT_EQ(kept.origins.at("data.line_end"), "tokenizer.type");
  EXPECT_THAT(config_to_json(kept.config), HasSubstr("\"line_end\": \"keep\""));
  EXPECT_THAT(config_with_origins(kept), HasSubstr("// tokenizer.type"));
  EXPECT_EQ(config_of("{}", {"tokenizer.type=bpe"}).data.line_end, LineEnd::keep);
  for (const char* named : {"eos", "none", "keep"}) {
    const LoadedConfig loaded = parse_config(R"({"tokenizer": {"type": "bpe"}})", "x.json",
                                             {std::string("data.line_end=") + named});
    EXPECT_THAT(config_to_json(loaded.config),
                HasSubstr(std::string("\"line_end\": \"") + named + '"'));
    EXPECT_EQ(loaded.origins.at("data.line_end"), "--set");
    EXPECT_EQ(parse_config(config_to_json(loaded.config), "x.json").config, loaded.config);
  }
  EXPECT_EQ(parse_config("{}", "x.json").origins.at("data.line_end"), "default");
}

TEST(ResolvedConfig, LoadsAgainEqualToItself) {
  for (const char* variant : {"t1", "t2", "transformer", "custom"}) {
    const Config once = config_of(
        R"({"data": {"train": ["a.txt", "b*.txt"]}, "optimizer": {"lr": 0.1234567890123456789},
            "schedule": {"warmup_init_lr": 3e-7}, "train": {"seed": 9223372036854775807}})",
        {std::string("model.variant=") + variant});
    EXPECT_EQ(to_string(once.model.variant), std::string(variant));
    const Config again = parse_config(config_to_json(once), "other.json").config;
    EXPECT_EQ(again, once) << variant;
    EXPECT_EQ(config_to_json(again), config_to_json(once)) << variant;
  }
}

}  // namespace
}  // namespace transnormer
