// Faults of checkpoints, and of what is asked of them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "cli/workspace.h"
#include "util/hash.h"

namespace transnormer {
namespace {

namespace fs = std::filesystem;

class BadCheckpoint : public TrainedRun {
 protected:
  // A fresh copy of the last checkpoint, to be spoiled.
  void SetUp() override {
    ASSERT_NO_FATAL_FAILURE(TrainedRun::SetUp());
    copy();
  }
  static void copy() {
    fs::remove_all(workspace() / "bad");
    fs::copy(fs::canonical(workspace() / "run/checkpoints/latest"), workspace() / "bad",
             fs::copy_options::recursive);
  }
  // eval here; that generate and inspect refuse the same is for one fault only.
  static void refuse(const std::string& words) {
    expect_refused(workspace(), {"eval", "bad"}, {words});
    expect_refused(workspace(), {"train", "tiny.json", "--run-dir", "new", "--resume", "bad"},
                   {words});
  }
  static void edit_manifest(const std::string& key, const nlohmann::json& value) {
    auto manifest = nlohmann::json::parse(workspace().read("bad/manifest.json"));
    ASSERT_TRUE(manifest.contains(key)) << manifest.dump();
    manifest[key] = value;
    workspace().write("bad/manifest.json", manifest.dump());
  }
};

TEST_F(BadCheckpoint, WhatIsNotThereOrIsNoneIsNamed) {
  for (const char* command : {"eval", "generate", "inspect"}) {
    expect_refused(workspace(), {command, "nowhere"}, {"nowhere"});
    expect_refused(workspace(), {command, "train.txt"}, {"train.txt"});
    expect_refused(workspace(), {command, "cache"}, {"cache"});
  }
}

TEST_F(BadCheckpoint, ANameThatNoFileCanHaveIsNamed) {
  const std::string name(300, 'x');
  expect_refused(workspace(), {"inspect", name}, {name + ": File name too long"});
}

TEST_F(BadCheckpoint, AnEmptyRunDirectoryHoldsNone) {
  fs::create_directories(workspace() / "bad/empty");
  expect_refused(workspace(), {"eval", "bad/empty"}, {"empty"});
}

TEST_F(BadCheckpoint, ACutFileIsNamed) {
  for (const char* name : {"model.safetensors", "optimizer.safetensors", "state.json",
                           "config.json", "tokenizer.txt", "unigram.bin"}) {
    copy();
    fs::resize_file(workspace() / "bad" / name, fs::file_size(workspace() / "bad" / name) - 1);
    refuse(name);
  }
}

TEST_F(BadCheckpoint, AFlippedBitIsNamed) {
  for (const char* name : {"model.safetensors", "optimizer.safetensors", "state.json",
                           "config.json", "tokenizer.txt", "unigram.bin"}) {
    copy();
    std::string bytes = workspace().read("bad/" + std::string(name));
    bytes[bytes.size() / 2] = static_cast<char>(bytes[bytes.size() / 2] ^ 1);
    workspace().write("bad/" + std::string(name), bytes);
    refuse(name);
  }
}

TEST_F(BadCheckpoint, AMissingFileIsNamed) {
  fs::remove(workspace() / "bad/optimizer.safetensors");
  refuse("optimizer.safetensors");
  expect_refused(workspace(), {"generate", "bad"}, {"optimizer.safetensors"});
  expect_refused(workspace(), {"inspect", "bad"}, {"optimizer.safetensors"});
}

TEST_F(BadCheckpoint, ADamagedManifestIsNamed) {
  workspace().write("bad/manifest.json", "{\"format\":");
  refuse("manifest.json");
  fs::remove(workspace() / "bad/manifest.json");
  refuse("bad");
}

TEST_F(BadCheckpoint, ANewerFormatIsRefusedWithBothNumbers) {
  const auto manifest = nlohmann::json::parse(workspace().read("bad/manifest.json"));
  std::string key;
  for (const auto& [name, value] : manifest.items()) {
    key = name.find("format") != std::string::npos ? name : key;
  }
  edit_manifest(key, 977);
  refuse("977");
}

// As earlier versions saved them when a training diverged.
TEST_F(BadCheckpoint, WeightsThatAreNotFiniteAreNamed) {
  std::string weights = workspace().read("bad/model.safetensors");
  constexpr char kNaN[] = {0, 0, static_cast<char>(0xC0), 0x7F};
  weights.replace(weights.size() - sizeof kNaN, sizeof kNaN, kNaN, sizeof kNaN);
  workspace().write("bad/model.safetensors", weights);
  auto manifest = nlohmann::json::parse(workspace().read("bad/manifest.json"));
  manifest["files"]["model.safetensors"]["sha256"] = sha256(weights);
  workspace().write("bad/manifest.json", manifest.dump());
  refuse("are not finite");
  expect_refused(workspace(), {"generate", "bad"}, {"are not finite"});
}

TEST_F(BadCheckpoint, EvalRefusesWhatItCannotScore) {
  expect_refused(workspace(), {"eval", "run", "--context-window", "24"}, {"context window"});
  expect_refused(workspace(), {"eval", "run", "--context-window", "-1"}, {"context-window"});
  expect_refused(workspace(), {"eval", "run", "--split", "exam"}, {"exam"});
  expect_refused(workspace(), {"eval", "run", "--text", "none.txt"}, {"none.txt"});
  expect_refused(workspace(), {"eval", "run", "--data", "none.json"}, {"none.json"});
  expect_refused(workspace(), {"eval", "run", "--data", "tiny.json", "--text", "test.txt"},
                 {"--text"});
  expect_refused(workspace(), {"eval", "run", "--set", "model.dim=32"}, {"model.dim"});
  expect_refused(workspace(), {"eval", "run", "--set", "data.test=[]"}, {"data.test"});
  workspace().write("empty.txt", "");
  expect_refused(workspace(), {"eval", "run", "--text", "empty.txt"}, {"empty.txt"});
  expect_refused(workspace(), {"eval", "run", "--per-token", "/dev/full"}, {"/dev/full"});
  expect_refused(workspace(), {"eval", "run", "--per-token", "train.txt/losses"}, {"train.txt"});
  expect_refused(workspace(), {"eval", "run", "--text", "test.txt", "--per-token", "./test.txt"},
                 {"--per-token: ./test.txt"});
}

TEST_F(BadCheckpoint, GenerateRefusesWhatItCannotDo) {
  expect_refused(workspace(), {"generate", "run", "--temperature", "-1"}, {"temperature"});
  expect_refused(workspace(), {"generate", "run", "--temperature", "nan"}, {"temperature"});
  expect_refused(workspace(), {"generate", "run", "--top-p", "0"}, {"top-p"});
  expect_refused(workspace(), {"generate", "run", "--top-k", "-2"}, {"top-k"});
  expect_refused(workspace(), {"generate", "run", "--max-tokens", "-2"}, {"max-tokens"});
  expect_refused(workspace(), {"generate", "run", "--max-tokens", "few"}, {"max-tokens"});
  expect_refused(workspace(), {"generate", "run", "--prompt-file", "none.txt"}, {"none.txt"});
  expect_refused(workspace(), {"generate", "run", "--prompt", "a", "--prompt-file", "test.txt"},
                 {"--prompt"});
}

}  // namespace
}  // namespace transnormer
