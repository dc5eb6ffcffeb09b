// What the system grants the program: threads, memory, files. Each limit is told in one line.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>

#include "cli/workspace.h"
#include "util/memory.h"
#include "util/processors.h"

namespace transnormer {
namespace {

using testing::HasSubstr;

class Limits : public TrainedRun {
 protected:
  static Outcome run_with(const ResourceLimit& limit, const Arguments& arguments) {
    return run_program(
        arguments, {.directory = workspace().path(), .input = "", .output = {}, .limits = {limit}});
  }
  static Arguments train(const std::string& directory, const std::vector<std::string>& sets) {
    Arguments arguments{"train", "tiny.json", "--run-dir", directory};
    for (const std::string& set : sets) {
      arguments.insert(arguments.end(), {"--set", set});
    }
    return arguments;
  }
};

TEST_F(Limits, ThreadsAreThoseThatTheEnvironmentAsksFor) {
  // The program is started with OMP_NUM_THREADS=1.
  ASSERT_EQ(workspace().run(train("auto", {"train.threads=0", "train.steps=1"})).status, 0);
  const auto state = nlohmann::json::parse(workspace().read("auto/checkpoints/latest/state.json"));
  EXPECT_EQ(state.at("threads"), 1);
}

TEST_F(Limits, FarMoreThreadsThanProcessorsAreWarnedOfInTrainingOnly) {
  const std::string many = "train.threads=" + std::to_string(2 * processors() + 1);
  const std::string warning = "threads slow each other down";
  const Outcome outcome = workspace().run(train("many", {many, "train.steps=1"}));
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr(warning));
  for (const Arguments& arguments :
       {Arguments{"eval", "many"}, Arguments{"generate", "many", "--max-tokens", "1"}}) {
    const Outcome elsewhere = workspace().run(arguments);
    EXPECT_EQ(elsewhere.status, 0);
    EXPECT_THAT(elsewhere.err, testing::Not(HasSubstr(warning)));
  }
  EXPECT_THAT(workspace()
                  .run({"bench", "tiny.json", "--repeat", "1", "--set", "model.vocab_size=9",
                        "--set", many})
                  .err,
              HasSubstr(warning));
}

TEST_F(Limits, ThreadsThatTheSystemRefusesAreTold) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "a sanitizer needs address space without a limit";
#endif
  const Outcome outcome =
      run_with({RLIMIT_AS, std::uint64_t{2} << 30}, train("new", {"train.threads=1000"}));
  EXPECT_EQ(outcome.status, 2) << outcome.err;
  EXPECT_EQ(lines_of(outcome.err).size(), 1U) << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr("train.threads: 1000"));
  EXPECT_THAT(outcome.err, HasSubstr("ulimit -u"));
}

TEST_F(Limits, MemoryThatTheSystemRefusesIsTold) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "a sanitizer needs address space without a limit";
#endif
  workspace().write("large.txt", std::string(200 << 20, 'x'));
  const Outcome outcome =
      run_with({RLIMIT_AS, std::uint64_t{800} << 20}, {"eval", "run", "--text", "large.txt"});
  std::filesystem::remove(workspace() / "large.txt");
  EXPECT_EQ(outcome.status, 2) << outcome.err;
  EXPECT_THAT(lines_of(outcome.err).back(), HasSubstr("transnormer: out of memory"));
  EXPECT_THAT(lines_of(outcome.err).back(), HasSubstr("ulimit -v"));
}

TEST_F(Limits, UpdatesThatAreHeldReadyCountInTheEstimate) {
  // One update would find room, the next beside it not.
  const auto samples =
      static_cast<std::int64_t>(0.7 * static_cast<double>(machine_memory_bytes()) / (2 * 8 * 24));
  const std::string batch =
      "train.global_batch_size=" + std::to_string(std::min<std::int64_t>(samples, 2147483647));
  const Outcome outcome = workspace().run(train("new", {batch, "train.micro_batch_size=4"}));
  EXPECT_EQ(outcome.status, 2);
  EXPECT_THAT(lines_of(outcome.err).back(),
              testing::StartsWith("transnormer: train.global_batch_size: "));
}

TEST_F(Limits, OfTheSizeOfFilesFailWritesAndEndNothing) {
  const Outcome start = run_with(
      {RLIMIT_FSIZE, 1024},
      {"tokenizer", "train", "tiny.json", "--out", "t", "--set", "tokenizer.pad_to_multiple=4096"});
  EXPECT_EQ(start.status, 2) << start.err;
  EXPECT_THAT(lines_of(start.err).back(), HasSubstr("ulimit -f"));

  const Outcome later = run_with({RLIMIT_FSIZE, 8192}, train("short", {}));
  EXPECT_EQ(later.status, 4) << later.err;
  EXPECT_THAT(later.err, HasSubstr("ulimit -f"));
}

TEST_F(Limits, OfOpenFilesAreTold) {
  const Outcome outcome = run_with({RLIMIT_NOFILE, 4}, train("none", {}));
  EXPECT_EQ(outcome.status, 2) << outcome.err;
  EXPECT_THAT(lines_of(outcome.err).back(), HasSubstr("Too many open files"));
}

}  // namespace
}  // namespace transnormer
