#include "checkpoint/checkpoint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "checkpoint/fixture.h"
#include "checkpoint/safetensors.h"
#include "config/load.h"
#include "util/error.h"
#include "util/file.h"
#include "util/hash.h"
#include "util/temporary_directory.h"
#include "util/version.h"

namespace transnormer {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using test::first_difference;
using test::TinyTraining;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr const char* kFiles[] = {"config.json", "model.safetensors", "optimizer.safetensors",
                                  "state.json",  "tokenizer.txt",     "unigram.bin"};

class CheckpointTest : public ::testing::Test {
 protected:
  static std::string opening_fault(const fs::path& path) {
    return test::user_error_of([&] { (void)Checkpoint::open(path); });
  }

  static void edit_manifest(const fs::path& checkpoint, const std::function<void(json&)>& edit) {
    json manifest = json::parse(read_file(checkpoint / "manifest.json"));
    edit(manifest);
    write_file(checkpoint / "manifest.json", manifest.dump());
  }

  test::TemporaryDirectory directory_;
  fs::path run_ = directory_ / "run";
  TinyTraining training_;
};

TEST_F(CheckpointTest, HoldsEverythingThatWasSaved) {
  const fs::path path = training_.save(run_, 1000);
  EXPECT_EQ(path, run_ / "checkpoints/step-00001000");
  const Checkpoint opened = Checkpoint::open(path);
  EXPECT_EQ(opened.path(), path);
  EXPECT_EQ(config_to_json(opened.config()), config_to_json(training_.config));
  EXPECT_EQ(state_to_json(opened.state()), state_to_json(training_.state));
  EXPECT_EQ(opened.tokenizer()->digest(), training_.tokenizer->digest());
  EXPECT_EQ(opened.unigram_counts(), training_.unigram_counts);
}

TEST_F(CheckpointTest, GivesModelAndOptimizerBackBitForBit) {
  const Checkpoint opened = Checkpoint::open(training_.save(run_, 1));
  TinyTraining other(2);
  ASSERT_NE(first_difference(named_tensors(*other.model), named_tensors(*training_.model)), "");
  other.optimizer->set_updates(77);
  opened.load_into(*other.model);
  opened.load_into(*other.optimizer);
  EXPECT_EQ(first_difference(named_tensors(*other.model), named_tensors(*training_.model)), "");
  EXPECT_EQ(first_difference(other.optimizer->named_state(), training_.optimizer->named_state()),
            "");
  EXPECT_EQ(other.optimizer->updates(), training_.state.optimizer_updates);
  const auto made = opened.load_model(at::kCPU);
  EXPECT_EQ(first_difference(named_tensors(*made), named_tensors(*training_.model)), "");
}

TEST_F(CheckpointTest, ListsItsFilesWithSizesAndDigests) {
  const fs::path path = training_.save(run_, 5);
  const json manifest = json::parse(read_file(path / "manifest.json"));
  EXPECT_EQ(manifest["format"], 1);
  EXPECT_EQ(manifest["program"], std::string("transnormer ") + program_version());
  EXPECT_EQ(manifest["step"], 5);
  EXPECT_EQ(manifest["tokens"], 12345);
  EXPECT_EQ(manifest["files"].size(), std::size(kFiles));
  for (const char* name : kFiles) {
    EXPECT_EQ(manifest["files"][name]["size"], fs::file_size(path / name)) << name;
    EXPECT_EQ(manifest["files"][name]["sha256"], sha256_of_file(path / name)) << name;
  }
  EXPECT_EQ(std::distance(fs::directory_iterator(path), fs::directory_iterator()), 7);
}

TEST_F(CheckpointTest, HasTheSameBytesWhereverItIsSaved) {
  const fs::path first = training_.save(run_, 5);
  const fs::path second = training_.save(directory_ / "elsewhere", 5);
  for (const char* name : kFiles) {
    EXPECT_EQ(sha256_of_file(first / name), sha256_of_file(second / name)) << name;
  }
}

TEST_F(CheckpointTest, OfARunIsItsBestElseItsLatestElseItsNewest) {
  const fs::path first = training_.save(run_, 1);
  const fs::path second = training_.save(run_, 2);
  const fs::path links = run_ / "checkpoints";
  EXPECT_EQ(Checkpoint::open(run_).path(), second);
  EXPECT_EQ(Checkpoint::open(links / "latest").state().step, 2);
  replace_symlink("step-00000001", links / "best");
  EXPECT_EQ(Checkpoint::open(run_).path(), first);
  replace_symlink("step-00000009", links / "best");  // leads nowhere
  EXPECT_EQ(Checkpoint::open(run_).path(), second);
  fs::remove(links / "latest");
  EXPECT_EQ(Checkpoint::open(run_).path(), second);
}

TEST_F(CheckpointTest, ThatIsNoneIsNamed) {
  EXPECT_THAT(opening_fault(directory_ / "absent"),
              AllOf(HasSubstr("absent"), HasSubstr("no such checkpoint")));
  EXPECT_THAT(opening_fault(directory_.path()), HasSubstr("not a checkpoint"));
  write_file(directory_ / "file", "");
  EXPECT_THAT(opening_fault(directory_ / "file"), HasSubstr("a checkpoint is a directory"));
  make_directories(run_ / "checkpoints");
  EXPECT_THAT(opening_fault(run_), HasSubstr("no checkpoint yet"));
}

TEST_F(CheckpointTest, WithACutFileIsRefusedByItsName) {
  const fs::path path = training_.save(run_, 1);
  for (const char* name : kFiles) {
    const std::string bytes = read_file(path / name);
    write_file(path / name, std::string_view(bytes).substr(0, bytes.size() - 1));
    EXPECT_THAT(opening_fault(path),
                AllOf(HasSubstr((path / name).string() + ": damaged"),
                      HasSubstr(std::to_string(bytes.size())), Not(HasSubstr("\n"))));
    write_file(path / name, bytes);
  }
  EXPECT_EQ(opening_fault(path), "nothing was thrown");
}

TEST_F(CheckpointTest, WithAFlippedBitIsRefusedByTheFilesName) {
  const fs::path path = training_.save(run_, 1);
  for (const char* name : kFiles) {
    const std::string bytes = read_file(path / name);
    std::string flipped = bytes;
    flipped[flipped.size() / 2] ^= 1;
    write_file(path / name, flipped);
    EXPECT_THAT(opening_fault(path), AllOf(HasSubstr((path / name).string() + ": damaged"),
                                           HasSubstr("SHA-256"), Not(HasSubstr("\n"))));
    write_file(path / name, bytes);
  }
}

TEST_F(CheckpointTest, WithAMissingFileIsRefusedByItsName) {
  const fs::path path = training_.save(run_, 1);
  for (const char* name : kFiles) {
    fs::rename(path / name, directory_ / "moved");
    EXPECT_THAT(opening_fault(path), HasSubstr((path / name).string() + ": missing"));
    fs::rename(directory_ / "moved", path / name);
  }
}

TEST_F(CheckpointTest, OfANewerFormatIsRefusedWithBothNumbers) {
  const fs::path path = training_.save(run_, 1);
  edit_manifest(path, [](json& manifest) { manifest = {{"format", 2}, {"something", "new"}}; });
  EXPECT_THAT(opening_fault(path), AllOf(HasSubstr("format 2"), HasSubstr("format 1")));
}

TEST_F(CheckpointTest, WithAForeignOrDamagedManifestIsRefused) {
  const fs::path path = training_.save(run_, 1);
  const std::string whole = read_file(path / "manifest.json");
  for (const char* text : {"", "{", "[]", "{}", R"({"format": "1"})", R"({"format": 0})",
                           R"({"format": 1})", R"({"format": 1, "program": "", "step": 1,
                           "tokens": 1, "files": {"../state.json": {"size": 1, "sha256": ""}}})"}) {
    write_file(path / "manifest.json", text);
    EXPECT_THAT(opening_fault(path), HasSubstr("manifest.json: ")) << text;
  }
  write_file(path / "manifest.json", whole);
  for (const char* name : kFiles) {
    edit_manifest(path, [&](json& manifest) { manifest["files"].erase(name); });
    EXPECT_THAT(opening_fault(path), HasSubstr("manifest.json: damaged")) << name;
    write_file(path / "manifest.json", whole);
  }
  edit_manifest(path, [](json& manifest) { manifest["step"] = 3; });
  EXPECT_THAT(opening_fault(path), AllOf(HasSubstr("step 3"), HasSubstr("state.json says 1")));
}

TEST_F(CheckpointTest, OfAnotherModelIsRefusedByTheFirstDifference) {
  const Checkpoint opened = Checkpoint::open(training_.save(run_, 1));
  ModelConfig wider = training_.config.model;
  wider.dim = 16;
  TransNormer model(wider, model_size(training_.config, training_.tokenizer.get()), at::kCPU);
  EXPECT_THAT(test::user_error_of([&] { opened.load_into(model); }),
              AllOf(HasSubstr("embed.weight"), HasSubstr("[8, 8]"), HasSubstr("[8, 16]")));
}

TEST(ModelSizeTest, TakesTheVocabularyFromConfigTokenizerOrTokenizerConfig) {
  const auto tokenizer = parse_tokenizer("a 1\nb 1\n", "dictionary");
  Config config;
  config.data.tokens_per_sample = 24;
  EXPECT_EQ(model_size(config, tokenizer.get()).vocab_size, 6);
  EXPECT_EQ(model_size(config, tokenizer.get()).max_positions, 24);
  config.tokenizer.vocab_size = 50;
  EXPECT_EQ(model_size(config, nullptr).vocab_size, 56);  // filled up to a multiple of 8
  EXPECT_EQ(model_size(config, tokenizer.get()).vocab_size, 6);
  config.model.vocab_size = 8;
  EXPECT_EQ(model_size(config, tokenizer.get()).vocab_size, 8);
  EXPECT_EQ(model_size(config, nullptr).vocab_size, 8);
}

TEST(ModelSizeTest, RefusesTooFewRowsAndAnUnknownNumber) {
  const auto tokenizer = parse_tokenizer("a 1\nb 1\n", "dictionary");
  Config config;
  EXPECT_THAT(test::user_error_of([&] { (void)model_size(config, nullptr); }),
              HasSubstr("set model.vocab_size"));
  config.model.vocab_size = 5;
  EXPECT_THAT(test::user_error_of([&] { (void)model_size(config, tokenizer.get()); }),
              AllOf(HasSubstr("model.vocab_size"), HasSubstr("5 rows"), HasSubstr("6 tokens")));
}

}  // namespace
}  // namespace transnormer
