// A temporary directory with small texts, a config that trains in a second, and the program to run
// in it.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "cli/program.h"

namespace transnormer {

class Workspace {
 public:
  Workspace();
  ~Workspace();
  Workspace(const Workspace&) = delete;
  Workspace& operator=(const Workspace&) = delete;

  [[nodiscard]] const std::filesystem::path& path() const { return path_; }
  [[nodiscard]] std::filesystem::path operator/(const std::string& name) const {
    return path_ / name;
  }

  void write(const std::string& name, const std::string& bytes) const;
  [[nodiscard]] std::string read(const std::string& name) const;
  [[nodiscard]] Outcome run(const Arguments& arguments, const std::string& input = "") const;

  // Every file and link but caches and locks, with content: what a refused command must not change.
  [[nodiscard]] std::map<std::string, std::string> content() const;

 private:
  std::filesystem::path path_;
};

// A trained run, `run/`, made once for all tests of a process: config `tiny.json`, 6 steps,
// checkpoints after 3 and 6.
class TrainedRun : public testing::Test {
 protected:
  void SetUp() override;
  static Workspace& workspace() { return *workspace_; }

 private:
  static inline std::unique_ptr<Workspace> workspace_;
};

// The program refused this: status 2, nothing on stdout, on stderr one line for each fault that
// holds these words, in this order, and no file changed.
void expect_refused(const Workspace& workspace, const Arguments& arguments,
                    const std::vector<std::string>& words_of_faults, const std::string& input = "");

}  // namespace transnormer
