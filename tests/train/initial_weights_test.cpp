// train.init_from: a fresh run that begins with the weights of another.
#include "train/initial_weights.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "train/retry.h"
#include "train/small_run.h"
#include "util/error.h"
#include "util/file.h"

namespace transnormer {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using Sets = std::vector<std::string>;

// A trained run, "source", and others that begin with its weights.
class InitialWeights : public testing::Test {
 protected:
  InitialWeights() {
    runs_.write("other.txt", small_text(20 * 16, 7));
    (void)runs_.train("source");
  }

  [[nodiscard]] Sets from_source(Sets sets) const {
    sets.push_back("train.init_from=" + (runs_.path() / "source").string());
    return sets;
  }

  [[nodiscard]] std::string other_text() const {
    return "data.train=" + (runs_.path() / "other.txt").string();
  }

  [[nodiscard]] std::string fault_of(const std::string& name, const Sets& sets) const {
    try {
      (void)set_up(runs_.request(name, sets));
    } catch (const UserError& error) {
      EXPECT_EQ(error.faults().size(), 1U);
      return error.what();
    }
    return "";
  }

  static std::vector<std::string> messages_of(const TrainingRun& run) {
    std::vector<std::string> messages;
    for (const log::NoteEvent& note : run.notes) {
      messages.push_back(note.message);
    }
    return messages;
  }

  static std::map<std::string, at::Tensor> weights_of(const TransNormer& model) {
    std::map<std::string, at::Tensor> weights;
    for (const NamedTensor& named : named_tensors(model)) {
      weights[named.name] = named.tensor.detach();
    }
    return weights;
  }

  // Those of the source's newest checkpoint.
  [[nodiscard]] std::map<std::string, at::Tensor> saved() const {
    return weights_of(*Checkpoint::open(runs_.checkpoint("source", 6)).load_model(at::kCPU));
  }

  SmallRun runs_;
};

TEST_F(InitialWeights, HaveTheBitsOfTheCheckpointAndEverythingElseIsNew) {
  const auto run = set_up(runs_.request("run", from_source({other_text(), "optimizer.lr=0.02"})));
  EXPECT_FALSE(run->resumed);
  EXPECT_EQ(run->state.step, 0);
  EXPECT_EQ(run->state.tokens, 0);
  const auto before = saved();
  for (const auto& [name, weight] : weights_of(*run->model)) {
    EXPECT_TRUE(at::equal(weight, before.at(name))) << name;
  }
  for (const NamedTensor& state : run->optimizer->named_state()) {
    EXPECT_EQ(state.tensor.abs().max().item<double>(), 0) << state.name;
  }
  EXPECT_THAT(run->origin, AllOf(HasSubstr("started with weights of"), HasSubstr("(step 6)")));
  EXPECT_THAT(messages_of(*run), Contains(HasSubstr("100.0% of the model's numbers")));
  EXPECT_THAT(run->warnings, IsEmpty());
}

TEST_F(InitialWeights, WithoutALearningRateTheyAreSavedAsTheyWere) {
  ASSERT_EQ(runs_.train("run", from_source({"train.steps=1", "optimizer.lr=0",
                                            "schedule.warmup_init_lr=0"})),
            ExitStatus::done);
  EXPECT_TRUE(runs_.file_of("run", 1, "model.safetensors") ==
              runs_.file_of("source", 6, "model.safetensors"));
}

// Its words would get other numbers from a vocabulary made of the new text.
TEST_F(InitialWeights, ComeWithTheirTokenizerWhichTheRunThenHasOfItsOwn) {
  runs_.write("other.txt", "at hill to sang and sang sang\nnew words at hill\n");
  const Sets sets = from_source({other_text(), "train.steps=4"});
  ASSERT_EQ(runs_.train("run", sets), ExitStatus::done);
  EXPECT_EQ(runs_.file_of("run", 4, "tokenizer.txt"), runs_.file_of("source", 6, "tokenizer.txt"));
  ASSERT_EQ(runs_.train("alone", {other_text(), "train.steps=4"}), ExitStatus::done);
  EXPECT_NE(runs_.file_of("alone", 4, "tokenizer.txt"), runs_.file_of("run", 4, "tokenizer.txt"));
  fs::remove_all(runs_.path() / "source");
  Sets longer = sets;
  longer.emplace_back("train.steps=6");
  EXPECT_EQ(runs_.train("run", longer), ExitStatus::done);  // though there is no source any more
  EXPECT_TRUE(runs_.has_checkpoint("run", 6));
  EXPECT_THAT(fault_of("new", sets),
              AllOf(HasSubstr("train.init_from: "), HasSubstr("there is no such checkpoint")));
}

TEST_F(InitialWeights, FitTheirOwnTokenizerOnlyWhereverThatLies) {
  const fs::path dictionary = runs_.path() / "dictionary.txt";
  fs::copy_file(runs_.checkpoint("source", 6) / "tokenizer.txt", dictionary);
  const Sets sets = from_source({"tokenizer.path=" + dictionary.string()});
  EXPECT_EQ(set_up(runs_.request("run", sets))->state.step, 0);
  write_file(dictionary, read_file(dictionary) + "word 1\n");
  EXPECT_THAT(fault_of("run", sets),
              AllOf(HasSubstr("tokenizer.path: "), HasSubstr("train.init_from")));
  EXPECT_FALSE(fs::exists(runs_.path() / "run"));
}

TEST_F(InitialWeights, OfADeeperModelAreNewWhereTheSourceHasNone) {
  const auto run = set_up(runs_.request("run", from_source({"model.layers=4"})));
  const auto before = saved();
  const auto weights = weights_of(*run->model);
  EXPECT_TRUE(at::equal(weights.at("layers.1.attn.q_proj.weight"),
                        before.at("layers.1.attn.q_proj.weight")));
  EXPECT_GT(weights.at("layers.3.attn.q_proj.weight").abs().max().item<double>(), 0);
  EXPECT_THAT(messages_of(*run), AllOf(Contains(HasSubstr("new, not in the checkpoint: ")),
                                       Contains(HasSubstr("layers.2-3.attn.q_proj.weight"))));
}

TEST_F(InitialWeights, OfAShallowerModelLeaveTheRest) {
  const auto run =
      set_up(runs_.request("run", from_source({"model.layers=1", "model.early_layers=1"})));
  EXPECT_THAT(messages_of(*run), Contains(AllOf(HasSubstr("left, without a place"),
                                                HasSubstr("layers.1.attn.q_proj.weight"))));
}

TEST_F(InitialWeights, OfOtherSizesAreNewAndNamedInAWarning) {
  const auto run = set_up(runs_.request("run", from_source({"model.ffn_dim=48"})));
  ASSERT_FALSE(run->notes.empty());
  EXPECT_EQ(run->notes.back().level, log::Level::warning);
  EXPECT_THAT(messages_of(*run), Contains(AllOf(HasSubstr("of other sizes"),
                                                HasSubstr("ffn.gate_proj.weight ([42, 16] "
                                                          "there, [48, 16] here)"))));
}

TEST_F(InitialWeights, WithNothingInCommonAreRefusedAndNothingIsMade) {
  EXPECT_THAT(fault_of("run", from_source({"model.dim=24"})),
              AllOf(HasSubstr("no weights in common"), HasSubstr("embed.weight ([")));
  EXPECT_FALSE(fs::exists(runs_.path() / "run"));
}

TEST_F(InitialWeights, ActOnAFreshRunOnly) {
  (void)runs_.train("run", {"train.steps=4"});
  (void)runs_.train("whole");
  TrainRequest request = runs_.request("run", from_source({"train.steps=6"}));
  for (const char* origin : {"--set", "--init-from"}) {
    request.loaded.origins["train.init_from"] = origin;
    try {
      (void)set_up(request);
      ADD_FAILURE() << origin;
    } catch (const UserError& error) {
      EXPECT_THAT(error.what(), AllOf(HasSubstr(origin), HasSubstr("began with new weights"),
                                      HasSubstr("source name --run-dir NEW")));
    }
  }
  request.loaded.origins["train.init_from"] = "small.json";  // nobody asked for it now
  {
    const auto run = set_up(request);
    EXPECT_TRUE(run->resumed);
    EXPECT_EQ(run->config.train.init_from, "");  // what it began with, not what is named now
    EXPECT_THAT(run->warnings, IsEmpty());
  }
  ASSERT_EQ(train(request), ExitStatus::done);
  expect_same_weights(runs_, "run", "whole", 6);
}

TEST_F(InitialWeights, NamedAgainLetTheRunGoOn) {
  const Sets sets = from_source({"train.steps=2"});
  ASSERT_EQ(runs_.train("run", sets), ExitStatus::done);
  EXPECT_TRUE(set_up(runs_.request("run", sets))->resumed);
  const auto run = set_up(runs_.request("run", {"train.steps=4"}));
  EXPECT_EQ(run->config.train.init_from, (runs_.path() / "source").string());
}

TEST_F(InitialWeights, HaveTheirLineEndsUnlessOthersAreNamed) {
  const std::string none = "train.init_from=" + (runs_.path() / "none").string();
  ASSERT_EQ(runs_.train("none", {"data.line_end=none"}), ExitStatus::done);
  {
    const auto run = set_up(runs_.request("run", {none}));
    EXPECT_EQ(run->config.data.line_end, LineEnd::none);
    EXPECT_THAT(run->changes,
                ElementsAre(HasSubstr("data.line_end: \"none\", as for the weights")));
    EXPECT_THAT(run->warnings, IsEmpty());
  }
  ASSERT_EQ(runs_.train("run", {none, "train.steps=2"}), ExitStatus::done);
  EXPECT_EQ(set_up(runs_.request("run"))->config.data.line_end, LineEnd::none);  // goes on
  const auto other = set_up(runs_.request("other", {none, "data.line_end=eos"}));
  EXPECT_EQ(other->config.data.line_end, LineEnd::eos);
  EXPECT_THAT(other->warnings,
              ElementsAre(AllOf(HasSubstr("data.line_end: is \"eos\""), HasSubstr("\"none\""))));
}

TEST_F(InitialWeights, AreGoneBackToWhereARunDivergesBeforeItsFirstCheckpoint) {
  const auto run = set_up(runs_.request("run", from_source({"train.divergence_retries=1"})));
  const auto before = saved();
  run->model->parameters().front().data().fill_(7);
  fs::remove_all(runs_.path() / "source");  // it has been opened
  go_back(*run, {.summary = "diverged", .sound_until = 0, .updates = 1});
  for (const auto& [name, weight] : weights_of(*run->model)) {
    EXPECT_TRUE(at::equal(weight, before.at(name))) << name;
  }
  EXPECT_EQ(run->state.samples_passed_over, 4);
}

// A run with a checkpoint, "run", that is set up anew and diverges at what was its beginning.
class InitialWeightsOfAResumedRun : public InitialWeights {
 protected:
  [[nodiscard]] std::unique_ptr<TrainingRun> resumed() const {
    const Sets sets = from_source({"train.steps=4", "train.divergence_retries=1"});
    EXPECT_EQ(runs_.train("run", sets), ExitStatus::done);
    auto run = set_up(runs_.request("run", sets));
    EXPECT_TRUE(run->resumed);
    return run;
  }
  static std::string fault_of_going_back(TrainingRun& run) {
    try {
      go_back(run, {.summary = "diverged", .sound_until = 0, .updates = 4});
    } catch (const DivergedError& error) {
      return error.what();
    }
    return "";
  }
};

TEST_F(InitialWeightsOfAResumedRun, AreGoneBackTo) {
  const auto before = saved();
  const auto run = resumed();
  EXPECT_EQ(fault_of_going_back(*run), "");
  EXPECT_EQ(run->state.step, 0);
  for (const auto& [name, weight] : weights_of(*run->model)) {
    EXPECT_TRUE(at::equal(weight, before.at(name))) << name;
  }
}

TEST_F(InitialWeightsOfAResumedRun, AreNotTakenWhereOthersLieThereNow) {
  const auto run = resumed();
  fs::remove_all(runs_.path() / "source");
  ASSERT_EQ(runs_.train("source", {"train.seed=7"}), ExitStatus::done);
  EXPECT_THAT(fault_of_going_back(*run),
              AllOf(HasSubstr("diverged; there is nothing to go back to: train.init_from: "),
                    HasSubstr("are not those that this run began with")));
  EXPECT_EQ(run->state.step, 4);
}

TEST_F(InitialWeightsOfAResumedRun, AreNotTakenWhereTheyAreGoneOrNotKnown) {
  const auto run = resumed();
  run->state.initial_weights_digest.clear();
  EXPECT_THAT(fault_of_going_back(*run), HasSubstr("is not recorded"));
  fs::remove_all(runs_.path() / "source");
  EXPECT_THAT(fault_of_going_back(*run), HasSubstr("there is no such checkpoint"));
}

}  // namespace
}  // namespace transnormer
