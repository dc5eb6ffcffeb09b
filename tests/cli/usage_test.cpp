// The command line itself: help, options and numbers, pipes at both ends.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <utility>

#include "cli/workspace.h"

namespace transnormer {
namespace {

using testing::HasSubstr;

class Usage : public TrainedRun {
 protected:
  static std::string help_of(const Arguments& arguments) {
    const Outcome outcome = workspace().run(arguments);
    EXPECT_EQ(outcome.status, 0);
    EXPECT_EQ(outcome.err, "");
    return outcome.out;
  }
};

TEST_F(Usage, HelpIsThatOfTheCommandWhereverItIsAskedFor) {
  for (const Arguments& arguments :
       {Arguments{"tokenizer", "encode", "--help"}, Arguments{"tokenizer", "encode", "x", "--help"},
        Arguments{"tokenizer", "--help", "encode"}, Arguments{"tokenizer", "encode", "-h", "x"},
        Arguments{"encode", "--help"}}) {
    EXPECT_THAT(help_of(arguments), HasSubstr("Usage: transnormer tokenizer encode "));
  }
  for (const Arguments& arguments :
       {Arguments{"config", "show", "--help"}, Arguments{"config", "show", "x", "--help"},
        Arguments{"config", "show", "--set", "a=b", "--help"}, Arguments{"show", "--help"}}) {
    EXPECT_THAT(help_of(arguments), HasSubstr("Usage: transnormer config show "));
  }
  EXPECT_THAT(help_of({"train", "--help", "x"}), HasSubstr("Usage: transnormer train "));
  EXPECT_THAT(help_of({"tokenizer", "--help"}), HasSubstr("Usage: transnormer tokenizer "));
  EXPECT_THAT(help_of({"--help"}), HasSubstr("Usage: transnormer [OPTIONS]"));
}

TEST_F(Usage, CommandsThatAreNotThereAreRefusedEvenWithHelp) {
  expect_refused(workspace(), {"nope", "--help"}, {"there is no command \"nope\""});
  expect_refused(workspace(), {"tokenizer", "nope"}, {"there is no command \"nope\""});
  expect_refused(workspace(), {"encode", "x"}, {"did you mean \"transnormer tokenizer encode\"?"});
}

TEST_F(Usage, UnknownOptionsNameTheKeyThatWasMeant) {
  const std::string rate = "unknown option --lr; did you mean --set optimizer.lr=1e-3?";
  expect_refused(workspace(), {"train", "tiny.json", "--lr", "1e-3"}, {rate});
  expect_refused(workspace(), {"bench", "--lr", "1e-3", "tiny.json"}, {rate});
  expect_refused(workspace(), {"config", "show", "--lr=1e-3"}, {rate});
  expect_refused(workspace(), {"train", "tiny.json", "--optimizer.lr=1e-3"},
                 {"unknown option --optimizer.lr; did you mean --set optimizer.lr=1e-3?"});
  expect_refused(workspace(), {"train", "tiny.json", "--every", "5"},
                 {"did you mean --set validation.every=5, --set checkpoint.every=5 or --set "
                  "log.every=5?"});
  expect_refused(workspace(), {"generate", "run", "--promt", "x"}, {"did you mean --prompt?"});
}

TEST_F(Usage, WhatOtherTrainersCallAnOptionNamesOurs) {
  const std::vector<std::pair<Arguments, std::string>> cases{
      {{"--learning-rate", "1e-3"}, "--set optimizer.lr=1e-3?"},
      {{"--steps", "100"}, "--set train.steps=100?"},
      {{"--max_steps=7"}, "--set train.steps=7?"},
      {{"--epochs", "3"}, "--set train.max_epochs=3?"},
      {{"--batch-size", "8"},
       "--set train.global_batch_size=8, --set train.micro_batch_size=8 or --set "
       "validation.batch_size=8?"},
      {{"--layers", "2"}, "--set model.layers=2?"},
      {{"--warmup-step", "5"}, "--set schedule.warmup_steps=5?"},
      {{"--bf16"}, "--precision bf16?"},
      {{"--output_dir", "x"}, "--run-dir x?"},
      {{"--precison", "bf16"}, "--precision?"}};
  for (const auto& [words, meant] : cases) {
    Arguments arguments{"train", "tiny.json"};
    arguments.insert(arguments.end(), words.begin(), words.end());
    expect_refused(workspace(), arguments, {"did you mean " + meant});
  }
  expect_refused(workspace(), {"generate", "run", "--tempature", "1"},
                 {"did you mean --temperature?"});
  // Options are not offered where the command has none of them.
  expect_refused(workspace(), {"prepare", "tiny.json", "--output_dir", "x"},
                 {"unknown option --output_dir (see --help)"});
}

TEST_F(Usage, CommandsThatAreMisspelledNameTheOneThatWasMeant) {
  expect_refused(workspace(), {"trian", "tiny.json"}, {"did you mean \"transnormer train\"?"});
  expect_refused(workspace(), {"tokenizer", "encod", "x"},
                 {"did you mean \"transnormer tokenizer encode\"?"});
}

TEST_F(Usage, KeysByOtherNamesAndOfSeveralSectionsNameWhatWasMeant) {
  const auto refused = [](const std::string& set, const std::string& fault) {
    expect_refused(workspace(), {"train", "tiny.json", "--set", set}, {fault});
  };
  refused("lr=1", "did you mean \"optimizer.lr\" (a number");
  refused("train.batch_size=8", "did you mean \"train.global_batch_size\" (an integer");
  refused("optimizer.learning_rate=1", "did you mean \"optimizer.lr\"");
  refused("every=5", "did you mean \"validation.every\", \"checkpoint.every\" or \"log.every\"?");
}

TEST_F(Usage, ANumberedGpuPointsToTheEnvironment) {
  const std::string hint =
      "to use that GPU set CUDA_VISIBLE_DEVICES=1 in the environment, and \"cuda\"";
  expect_refused(workspace(), {"train", "tiny.json", "--device", "cuda:1"}, {hint});
  expect_refused(workspace(), {"train", "tiny.json", "--set", "train.device=cuda:1"}, {hint});
}

TEST_F(Usage, LinesOfATrainingFitATerminal) {
  const std::string deep = std::string(70, 'd') + "/run";
  for (const std::string& directory : {deep, (workspace() / deep).string() + "-absolute"}) {
    for (const char* steps : {"train.steps=4", "train.steps=6"}) {  // begun, and gone on with
      const Outcome outcome =
          workspace().run({"train", "tiny.json", "--run-dir", directory, "--set", steps});
      EXPECT_EQ(outcome.status, 0) << outcome.err;
      for (const std::string& line : lines_of(outcome.err)) {
        EXPECT_LE(line.size(), 100U) << line;
      }
    }
  }
}

TEST_F(Usage, NumbersAreDecimalAndInRange) {
  for (const auto& [option, value] :
       {std::pair("--seed", "18446744073709551616"), std::pair("--seed", "-1"),
        std::pair("--seed", ""), std::pair("--max-tokens", "1e3"), std::pair("--top-k", "0x10")}) {
    expect_refused(workspace(), {"generate", "run", option, value},
                   {std::string(option) + " is \"" + value + "\"; expected an integer"});
  }
  for (const auto& [option, value] :
       {std::pair("--temperature", "nan"), std::pair("--temperature", "0x1p3"),
        std::pair("--top-p", "1e999")}) {
    expect_refused(workspace(), {"generate", "run", option, value},
                   {std::string(option) + " is \"" + value + "\"; expected a number"});
  }
  expect_refused(workspace(), {"eval", "run", "--context-window", "0x4"}, {"--context-window is"});
  expect_refused(workspace(), {"bench", "tiny.json", "--repeat", "0"}, {"--repeat is"});
  expect_refused(workspace(), {"bench", "tiny.json", "--batch-size", "-4"}, {"--batch-size is"});
  expect_refused(workspace(), {"bench", "tiny.json", "--lengths", "8,4.0"}, {"--lengths is"});
  // Leading zeros do not change the base.
  EXPECT_EQ(workspace().run({"generate", "run", "--max-tokens", "9", "--seed", "010"}).out,
            workspace().run({"generate", "run", "--max-tokens", "9", "--seed", "10"}).out);
}

// A named pipe in the workspace that gives this text to the first who reads it.
class TextPipe {
 public:
  TextPipe(const std::filesystem::path& path, const std::string& text) : path_(path) {
    EXPECT_EQ(::mkfifo(path.c_str(), 0600), 0);
    writer_ = std::thread([path, text] { std::ofstream(path) << text; });
  }
  ~TextPipe() {
    writer_.join();
    std::filesystem::remove(path_);
  }
  TextPipe(const TextPipe&) = delete;
  TextPipe& operator=(const TextPipe&) = delete;

 private:
  std::filesystem::path path_;
  std::thread writer_;
};

TEST_F(Usage, AConfigMayComeFromAPipeWhichIsReadOnce) {
  const std::string config = workspace().read("tiny.json");
  const std::string size = "model.vocab_size=16";
  const auto with_pipe = [&](const Arguments& arguments) {
    const TextPipe pipe(workspace() / "pipe", config);
    return workspace().run(arguments);
  };
  EXPECT_EQ(with_pipe({"config", "check", "pipe"}).out, "ok: pipe\n");
  EXPECT_THAT(with_pipe({"config", "show", "--json", "pipe"}).out,
              HasSubstr('"' + (workspace() / "train.txt").string() + '"'));
  EXPECT_EQ(with_pipe({"inspect", "pipe", "--json", "--set", size}).out,
            workspace().run({"inspect", "tiny.json", "--json", "--set", size}).out);
  const Outcome bench = with_pipe(
      {"bench", "pipe", "--set", size, "--repeat", "1", "--attentions", "t1,norm", "--json"});
  EXPECT_EQ(nlohmann::json::parse(bench.out).at("rows").size(), 2U) << bench.err;
  const Outcome unnamed = with_pipe({"train", "pipe"});
  EXPECT_EQ(unnamed.status, 2);
  EXPECT_THAT(unnamed.err, HasSubstr("--set run_name=NAME"));
  EXPECT_EQ(with_pipe({"train", "pipe", "--run-dir", "piped"}).status, 0);
  EXPECT_EQ(workspace().read("piped/checkpoints/latest/model.safetensors"),
            workspace().read("run/checkpoints/latest/model.safetensors"));
}

TEST_F(Usage, StandardInputMayBeTheConfig) {
  const std::string config = workspace().read("tiny.json");
  EXPECT_EQ(workspace().run({"config", "check", "/dev/stdin"}, config).status, 0);
  expect_refused(workspace(), {"train", "/dev/stdin"}, {"run_name: "}, config);
}

// The outcome of a command whose answer nobody reads beyond the first bytes.
Outcome cut_short(const Workspace& workspace, const Arguments& arguments) {
  const std::filesystem::path pipe = workspace / "answer";
  EXPECT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  const int reader = ::open(pipe.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  Program program(arguments, {.directory = workspace.path(), .input = "", .output = pipe});
  struct pollfd there {
    .fd = reader, .events = POLLIN, .revents = 0
  };
  EXPECT_EQ(::poll(&there, 1, -1), 1);
  char bytes[5];
  EXPECT_GT(::read(reader, bytes, sizeof bytes), 0);
  ::close(reader);
  const Outcome outcome = program.wait();
  std::filesystem::remove(pipe);
  return outcome;
}

TEST_F(Usage, AReaderWhoHadEnoughEndsACommandQuietly) {
  const Outcome generate = cut_short(
      workspace(), {"generate", "run", "--prompt", "the river", "--max-tokens", "1000000000"});
  EXPECT_EQ(generate.status, 0);
  EXPECT_EQ(generate.err, "");
  const Outcome bench = cut_short(workspace(), {"bench", "tiny.json", "--set", "model.vocab_size=9",
                                                "--lengths", "8,16", "--repeat", "1"});
  EXPECT_EQ(bench.status, 0);
  EXPECT_EQ(bench.err, "");
  EXPECT_EQ(cut_short(workspace(), {"config", "show"}).status, 0);
}

TEST_F(Usage, AnAnswerThatCannotBeWrittenIsAFault) {
  for (const Arguments& arguments :
       {Arguments{"generate", "run", "--max-tokens", "5"}, Arguments{"config", "show"},
        Arguments{"prepare", "tiny.json"}}) {
    const Outcome outcome =
        run_program(arguments, {workspace().path(), "", std::filesystem::path("/dev/full")});
    EXPECT_EQ(outcome.status, 2) << arguments.front();
    EXPECT_THAT(outcome.err, HasSubstr("transnormer: standard output: cannot be written: No space"))
        << arguments.front();
  }
}

}  // namespace
}  // namespace transnormer
