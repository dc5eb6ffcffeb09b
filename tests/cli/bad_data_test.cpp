// Faults of texts, tokenizers and caches.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "cli/workspace.h"

namespace transnormer {
namespace {

namespace fs = std::filesystem;

class BadData : public testing::Test {
 protected:
  void refuse_text(const std::string& assignment, const std::string& words) {
    expect_refused(workspace_, {"prepare", "tiny.json", "--set", assignment}, {words});
    expect_refused(workspace_, {"train", "tiny.json", "--run-dir", "new", "--set", assignment},
                   {words});
  }
  std::vector<fs::path> caches() {
    std::vector<fs::path> caches;
    for (const auto& entry : fs::recursive_directory_iterator(workspace_ / "cache")) {
      if (entry.is_regular_file() && entry.file_size() > 500) {
        caches.push_back(entry.path());
      }
    }
    return caches;
  }
  std::string prepared() {
    const Outcome outcome = workspace_.run({"prepare", "tiny.json", "--json"});
    EXPECT_EQ(outcome.status, 0) << outcome.err;
    return outcome.out;
  }
  std::string trained() {
    const Outcome outcome =
        workspace_.run({"train", "tiny.json", "--run-dir", "run", "--resume", "auto"});
    EXPECT_EQ(outcome.status, 0) << outcome.err;
    std::string model = workspace_.read("run/checkpoints/latest/model.safetensors");
    fs::remove_all(workspace_ / "run");
    return model;
  }
  Workspace workspace_;
};

TEST_F(BadData, TextsThatAreNotThereAreNamed) {
  refuse_text("data.train=none.txt", "none.txt");
  refuse_text("data.valid=none.txt", "none.txt");
  refuse_text("data.train=nothing-*.txt", "nothing-*.txt");
  refuse_text("data.train=.", "data.train");
}

TEST_F(BadData, EmptyTextsAreNamed) {
  workspace_.write("empty.txt", "");
  refuse_text("data.train=empty.txt", "empty.txt");
}

TEST_F(BadData, BinaryTextsAreNamed) {
  workspace_.write("binary.txt", std::string("\x7f"
                                             "ELF\0\0\1\2words\n\0",
                                             16));
  refuse_text("data.train=binary.txt", "binary.txt");
  workspace_.write("wide.txt", std::string("t\0h\0e\0\n\0", 8));
  refuse_text("data.train=wide.txt", "wide.txt");
}

TEST_F(BadData, TrainingNeedsText) {
  workspace_.write("none.json", R"({"model": {}})");
  expect_refused(workspace_, {"train", "none.json", "--run-dir", "new"}, {"data.train"});
}

TEST_F(BadData, TokenizersThatAreNoneAreNamed) {
  workspace_.write("noise.model", std::string("\x00\x01\x02\xff\xfe noise", 11));
  refuse_text("tokenizer.path=noise.model", "noise.model");
  refuse_text("tokenizer.path=none.model", "none.model");
  expect_refused(workspace_, {"tokenizer", "encode", "noise.model"}, {"noise.model"}, "the\n");
  expect_refused(workspace_, {"tokenizer", "encode", "none.model"}, {"none.model"}, "the\n");
}

TEST_F(BadData, IdsThatAreNoneAreNamed) {
  workspace_.write("words.txt", "the 5\nriver 3\n");
  expect_refused(workspace_, {"tokenizer", "decode", "words.txt"}, {"99"}, "4 99\n");
  expect_refused(workspace_, {"tokenizer", "decode", "words.txt"}, {"-1"}, "-1\n");
  expect_refused(workspace_, {"tokenizer", "decode", "words.txt"}, {"four"}, "four\n");
}

TEST_F(BadData, AVocabularyLargerThanTheModelsIsRefused) {
  expect_refused(workspace_,
                 {"train", "tiny.json", "--run-dir", "new", "--set", "model.vocab_size=5"},
                 {"model.vocab_size"});
}

TEST_F(BadData, ADamagedCacheIsNeverSilentlyUsed) {
  const std::string counts = prepared();
  const std::string model = trained();
  const auto damage = [](const fs::path& cache, const std::string& how) {
    if (how == "cut") {
      fs::resize_file(cache, fs::file_size(cache) - 7);
    } else if (how == "flipped") {
      std::fstream file(cache, std::ios::in | std::ios::out | std::ios::binary);
      file.seekg(-9, std::ios::end);
      const char byte = static_cast<char>(file.get() ^ 4);
      file.seekp(-9, std::ios::end);
      file.put(byte);
    } else {
      fs::resize_file(cache, 0);
    }
  };
  for (const std::string how : {"cut", "flipped", "empty"}) {
    SCOPED_TRACE(how);
    ASSERT_GE(caches().size(), 3U);
    for (const fs::path& cache : caches()) {
      damage(cache, how);
    }
    EXPECT_EQ(trained(), model);
    EXPECT_EQ(prepared(), counts);
  }
}

TEST_F(BadData, InspectRefusesADamagedCache) {
  (void)prepared();
  workspace_.write("noise.bin", std::string(5000, '\3'));
  expect_refused(workspace_, {"inspect", "noise.bin"}, {"noise.bin"});
  for (const fs::path& cache : caches()) {
    fs::copy_file(cache, workspace_ / "cut.bin", fs::copy_options::overwrite_existing);
    fs::resize_file(workspace_ / "cut.bin", fs::file_size(cache) - 7);
    expect_refused(workspace_, {"inspect", "cut.bin"}, {"cut.bin"});
  }
}

}  // namespace
}  // namespace transnormer
