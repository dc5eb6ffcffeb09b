// completion: what the shells make of the scripts.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "cli/workspace.h"

namespace transnormer {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::IsEmpty;
using testing::IsSupersetOf;
using testing::Not;

bool has(const char* shell) {
  return std::system((std::string("command -v ") + shell + " >/dev/null").c_str()) == 0;
}

class Completion : public testing::Test {
 protected:
  Completion() {
    for (const std::string shell : {"bash", "zsh"}) {
      const Outcome outcome = workspace_.run({"completion", shell});
      EXPECT_EQ(outcome.status, 0) << outcome.err;
      workspace_.write(shell + "-script", outcome.out);
    }
    workspace_.write("some.json", "{}");
  }

  // What `shell` answers to this script, by lines.
  std::vector<std::string> answer(const std::string& shell, const std::string& script) {
    workspace_.write("ask", script);
    const std::string command = "cd '" + workspace_.path().string() + "' && " + shell + " ask 2>&1";
    std::FILE* pipe = ::popen(command.c_str(), "r");
    std::string text;
    char buffer[4096];
    while (const std::size_t got = std::fread(buffer, 1, sizeof buffer, pipe)) {
      text.append(buffer, got);
    }
    ::pclose(pipe);
    return lines_of(text);
  }

  // The candidates for the end of this line.
  std::vector<std::string> bash(const std::string& line) {
    return answer("bash --norc",
                  "source ./bash-script\nCOMP_LINE='" + line + "'\nCOMP_POINT=${#COMP_LINE}\n" +
                      "_transnormer_complete\n" +
                      "((${#COMPREPLY[@]} == 0)) || printf '%s\\n' \"${COMPREPLY[@]}\"\n");
  }

  // The same for zsh; what would be done by its own functions is printed.
  std::vector<std::string> zsh(const std::string& line) {
    return answer("zsh -f",
                  "compadd() { while [[ $1 != -- ]]; do shift; done; shift; print -l -- \"$@\" }\n"
                  "_files() { print -- @files }\n"
                  "compset() { : }\nsource ./zsh-script\nline='" +
                      line + "'\n" +
                      "words=(\"${(@s: :)line}\")\nCURRENT=${#words}\n_transnormer\n");
  }

  Workspace workspace_;
};

TEST_F(Completion, OfBashKnowsCommandsOptionsAndChoices) {
  EXPECT_THAT(bash("transnormer tr"), ElementsAre("train"));
  EXPECT_THAT(bash("transnormer tokenizer "), ElementsAre("train", "encode", "decode"));
  EXPECT_THAT(bash("transnormer train x --dev"), ElementsAre("--device"));
  EXPECT_THAT(bash("transnormer tokenizer train --o"), ElementsAre("--out"));
  EXPECT_THAT(bash("transnormer train x --device "), ElementsAre("auto", "cpu", "cuda"));
  EXPECT_THAT(bash("transnormer train x --device=c"), ElementsAre("cpu", "cuda"));
  EXPECT_THAT(bash("transnormer completion "), ElementsAre("bash", "zsh"));
  EXPECT_THAT(bash("transnormer generate x --seed "), IsEmpty());
}

TEST_F(Completion, OfBashNamesFilesWhereTheyStand) {
  EXPECT_THAT(bash("transnormer train so"), ElementsAre("some.json"));
  EXPECT_THAT(bash("transnormer train --json some.json --run-dir so"), ElementsAre("some.json"));
  EXPECT_THAT(bash("transnormer train x --resume "), IsSupersetOf({"auto", "never", "some.json"}));
}

TEST_F(Completion, OfBashKnowsTheKeysOfTheConfigAndTheirChoices) {
  EXPECT_THAT(bash("transnormer train x --set optimizer.l"), ElementsAre("optimizer.lr="));
  EXPECT_THAT(bash("transnormer train x --set train.precision="),
              ElementsAre("fp32", "bf16", "fp16"));
  EXPECT_THAT(bash("transnormer train x --set model.late.attention=so"), ElementsAre("softmax"));
  EXPECT_THAT(bash("transnormer bench x --set model.lrpe=t"), ElementsAre("true"));
}

TEST_F(Completion, OfZshKnowsTheSame) {
  if (!has("zsh")) {
    GTEST_SKIP() << "zsh is not installed";
  }
  EXPECT_THAT(zsh("transnormer "), IsSupersetOf({"train", "eval", "tokenizer", "completion"}));
  EXPECT_THAT(zsh("transnormer tokenizer "), ElementsAre("train", "encode", "decode"));
  EXPECT_THAT(zsh("transnormer train x --"), IsSupersetOf({"--device", "--set"}));
  EXPECT_THAT(zsh("transnormer train x --device "), ElementsAre("auto", "cpu", "cuda"));
  EXPECT_THAT(zsh("transnormer train "), ElementsAre("@files"));
  EXPECT_THAT(zsh("transnormer train x --set "), Contains("optimizer.lr"));
  EXPECT_THAT(zsh("transnormer train x --set train.precision="),
              ElementsAre("fp32", "bf16", "fp16"));
  EXPECT_THAT(zsh("transnormer generate x --seed "), Not(Contains("@files")));
  // As zsh itself finds it, under its name in $fpath.
  EXPECT_THAT(answer("zsh -f",
                     "mkdir -p place && cp zsh-script place/_transnormer\n"
                     "fpath=($PWD/place $fpath)\nautoload -Uz compinit\n"
                     "compinit -u -D && print -- $_comps[transnormer]\n"),
              ElementsAre("_transnormer"));
}

}  // namespace
}  // namespace transnormer
