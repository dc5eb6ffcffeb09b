#include "checkpoint/checkpoint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "checkpoint/fixture.h"
#include "checkpoint/run_directory.h"
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

  // As somebody who is careful would: size and digest in the manifest are right.
  static void edit_state(const fs::path& checkpoint, const std::string& key, const json& value) {
    json state = json::parse(read_file(checkpoint / "state.json"));
    state[key] = value;
    put_state(checkpoint, state);
  }

  static void put_state(const fs::path& checkpoint, const json& state) {
    write_file(checkpoint / "state.json", state.dump());
    edit_manifest(checkpoint, [&](json& manifest) {
      manifest["files"]["state.json"] = {{"size", state.dump().size()},
                                         {"sha256", sha256(state.dump())}};
    });
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
    EXPECT_EQ(manifest["files"][name]["sha256"], sha256(InputFile(path / name))) << name;
  }
  EXPECT_EQ(std::distance(fs::directory_iterator(path), fs::directory_iterator()), 7);
}

TEST_F(CheckpointTest, HasTheSameBytesWhereverItIsSaved) {
  const fs::path first = training_.save(run_, 5);
  const fs::path second = training_.save(directory_ / "elsewhere", 5);
  for (const char* name : kFiles) {
    EXPECT_EQ(sha256(InputFile(first / name)), sha256(InputFile(second / name))) << name;
  }
}

TEST_F(CheckpointTest, OfARunIsTheBestThatTheNewestTellsOfElseTheNewest) {
  const fs::path first = training_.save(run_, 1);
  const fs::path second = training_.save(run_, 2);
  EXPECT_EQ(Checkpoint::open(run_).path(), second);
  training_.state.best_step = 1;
  const fs::path third = training_.save(run_, 3);
  EXPECT_EQ(Checkpoint::open(run_).path(), first);
  fs::remove_all(first);
  EXPECT_EQ(Checkpoint::open(run_).path(), third);
}

TEST_F(CheckpointTest, OfARunIsTheLinkedBestWhereTheBestItselfWasNotSaved) {
  training_.save(run_, 1);
  training_.state.best_step = 2;  // that save failed
  const fs::path third = training_.save(run_, 3);
  const fs::path best = run_ / "checkpoints/best";
  replace_symlink("step-00000001", best);
  EXPECT_EQ(Checkpoint::open(run_).state().step, 1);
  replace_symlink("step-00000009", best);  // leads nowhere
  EXPECT_EQ(Checkpoint::open(run_).path(), third);
  training_.state.best_step = -1;  // no validation counts any more
  training_.save(run_, 4);
  replace_symlink("step-00000001", best);
  EXPECT_EQ(Checkpoint::open(run_).state().step, 4);
}

TEST_F(CheckpointTest, OfACopyThatMadeLinksIntoDirectoriesIsTheSame) {
  training_.save(run_, 1);
  training_.state.best_step = 1;
  training_.save(run_, 2);
  const fs::path checkpoints = run_ / "checkpoints";
  fs::copy(checkpoints / "step-00000002", checkpoints / "best");
  fs::copy(checkpoints / "step-00000001", checkpoints / "latest");
  EXPECT_EQ(Checkpoint::open(run_).path(), checkpoints / "step-00000001");
}

TEST_F(CheckpointTest, IsThePlaceThatALinkLedToWhenItWasOpened) {
  TinyTraining other(2);
  training_.save(run_, 1);
  other.save(run_, 2);
  const fs::path link = run_ / "checkpoints/latest";
  replace_symlink("step-00000001", link);
  const Checkpoint opened = Checkpoint::open(link);
  EXPECT_EQ(opened.path(), run_ / "checkpoints/step-00000001");
  replace_symlink("step-00000002", link);
  EXPECT_EQ(first_difference(named_tensors(*opened.load_model(at::kCPU)),
                             named_tensors(*training_.model)),
            "");
}

TEST_F(CheckpointTest, LoadsWhatWasVerifiedThoughItIsRemovedMeanwhile) {
  const fs::path path = training_.save(run_, 1);
  const Checkpoint opened = Checkpoint::open(path);
  fs::remove_all(path);
  TinyTraining(2).save(run_, 1);
  TinyTraining other(3);
  opened.load_into(*other.model);
  opened.load_into(*other.optimizer);
  EXPECT_EQ(first_difference(named_tensors(*other.model), named_tensors(*training_.model)), "");
  EXPECT_EQ(first_difference(other.optimizer->named_state(), training_.optimizer->named_state()),
            "");
}

// While a training makes and removes checkpoints as fast as it can, opening its run finds a sound
// one each time. Many readers at once are each held up long enough to see theirs go.
TEST_F(CheckpointTest, OfARunThatRemovesThemMeanwhileIsAnotherOne) {
  RunDirectory directory(run_);
  directory.keep();
  training_.save(run_, 1);
  std::atomic<bool> stop = false;
  std::thread training([&] {
    CheckpointConfig keep;
    for (std::int64_t step = 2; !stop; ++step) {
      training_.state.best_step = step - 1;
      training_.save(run_, step);
      directory.remove_old_checkpoints(keep, step - 1);
    }
  });
  {
    std::vector<std::jthread> readers;
    for (int reader = 0; reader < 8; ++reader) {
      readers.emplace_back([this] {
        for (int i = 0; i < 30; ++i) {
          EXPECT_EQ(opening_fault(run_), "nothing was thrown");
        }
      });
    }
  }
  stop = true;
  training.join();
}

TEST_F(CheckpointTest, OfAVersionBeforeAFieldOfTheStateIsWhole) {
  const std::set<std::string> required{"step", "tokens", "optimizer_updates", "train_data_digest"};
  const fs::path path = training_.save(run_, 1);
  const json state = json::parse(read_file(path / "state.json"));
  for (const auto& [key, value] : state.items()) {
    json older = state;
    older.erase(key);
    put_state(path, older);
    EXPECT_THAT(opening_fault(path), required.contains(key) ? HasSubstr('"' + key + "\" is missing")
                                                            : HasSubstr("nothing was thrown"));
  }
}

TEST_F(CheckpointTest, WithFiguresThatNoTrainingComesToIsRefused) {
  const std::vector<std::pair<std::string, json>> figures{
      {"step", -5},
      {"step", 4611686018427387904},
      {"tokens", -1},
      {"optimizer_updates", 2},
      {"loss_scale", 0},
      {"loss_scale", -1.5},
      {"loss_scale", nullptr},
      {"scale_growth_count", -1},
      {"skipped_updates", 9223372036854775807},
      {"consecutive_skips", -1},
      {"validated_step", 7},
      {"best_step", -2},
      {"validations_without_gain", -1},
      {"elapsed_s", -1},
      {"loss_sum", nullptr},
      {"loss_tokens", -1},
      {"loss_sum", 1e300},
      {"window_updates", 9223372036854775807},
      {"window_loss_sum", -1},
      {"former_window_loss", 1e300},
      {"low_loss_step", 2},
      {"loss_scale", 1e300},
      {"scale_growth_count", 5000},
      {"threads", -1}};
  for (const auto& [key, value] : figures) {
    const fs::path path = training_.save(run_, 1);
    edit_state(path, key, value);
    EXPECT_THAT(opening_fault(path), AllOf(HasSubstr("state.json: damaged: \"" + key + "\""),
                                           HasSubstr("expected"), Not(HasSubstr("\n"))))
        << value;
  }
}

TEST_F(CheckpointTest, WithAManifestOfImpossibleNumbersIsRefused) {
  const fs::path path = training_.save(run_, 60);
  const std::string whole = read_file(path / "manifest.json");
  for (const json& number : {json(60.7), json(-60), json("60"), json(18446744073709551615U)}) {
    for (const char* key : {"step", "tokens"}) {
      edit_manifest(path, [&](json& manifest) { manifest[key] = number; });
      EXPECT_THAT(opening_fault(path), HasSubstr("manifest.json: damaged")) << key << number;
      write_file(path / "manifest.json", whole);
    }
    edit_manifest(path, [&](json& manifest) { manifest["files"]["state.json"]["size"] = number; });
    EXPECT_THAT(opening_fault(path), HasSubstr("damaged")) << number;
    write_file(path / "manifest.json", whole);
  }
}

TEST_F(CheckpointTest, WithCountsOfAnotherVocabularyIsRefused) {
  training_.unigram_counts.push_back(3);
  EXPECT_THAT(opening_fault(training_.save(run_, 1)),
              AllOf(HasSubstr("unigram.bin: damaged"), HasSubstr("counts 9 tokens"),
                    HasSubstr("the tokenizer has 8")));
}

TEST_F(CheckpointTest, WithTwentyThousandListedFilesTellsOfSome) {
  const fs::path path = training_.save(run_, 1);
  edit_manifest(path, [](json& manifest) {
    for (int i = 0; i < 20000; ++i) {
      manifest["files"]["file-" + std::to_string(i)] = {{"size", 1}, {"sha256", ""}};
    }
  });
  EXPECT_THAT(opening_fault(path),
              AllOf(HasSubstr("missing from the checkpoint"), HasSubstr("and 19990 more files")));
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
  edit_manifest(path, [](json& manifest) { manifest["format"] = 18446744073709551615U; });
  EXPECT_THROW((void)read_manifest(path), NewerFormatError);
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
  for (const std::string& name :
       {std::string("..\0x", 4), std::string("a\nb"), std::string(500, 'x')}) {
    write_file(path / "manifest.json", whole);
    edit_manifest(path, [&](json& manifest) {
      manifest["files"][name] = {{"size", 1}, {"sha256", ""}};
    });
    EXPECT_THAT(opening_fault(path), HasSubstr("is no name of a file in a checkpoint"));
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

}  // namespace
}  // namespace transnormer
