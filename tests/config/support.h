// What the tests of the config share.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "config/load.h"
#include "model/attention/diag.h"
#include "model/attention/norm.h"
#include "optim/adamw.h"
#include "util/error.h"

namespace transnormer {

using Sets = std::vector<std::string>;

// The faults of a config given as text; none if it is sound.
inline std::vector<std::string> faults_of(const std::string& json, const Sets& sets = {}) {
  try {
    static_cast<void>(parse_config(json, "x.json", sets));
    return {};
  } catch (const UserError& error) {
    return error.faults();
  }
}

inline std::vector<std::string> faults_of_file(const std::filesystem::path& file,
                                               const Sets& sets = {}) {
  try {
    static_cast<void>(load_config(file, sets));
    return {};
  } catch (const UserError& error) {
    return error.faults();
  }
}

inline Config config_of(const std::string& json, const Sets& sets = {}) {
  return parse_config(json, "x.json", sets).config;
}

// A directory that goes away with the test.
class TemporaryDirectory {
 public:
  TemporaryDirectory() {
    std::string name = (std::filesystem::temp_directory_path() / "config-test-XXXXXX").string();
    path_ = std::filesystem::canonical(mkdtemp(name.data()));
  }
  ~TemporaryDirectory() { std::filesystem::remove_all(path_); }
  TemporaryDirectory(const TemporaryDirectory&) = delete;
  TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;

  [[nodiscard]] std::filesystem::path path() const { return path_; }

  std::filesystem::path write(const std::string& name, const std::string& text) const {
    const std::filesystem::path file = path_ / name;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << text;
    return file;
  }

 private:
  std::filesystem::path path_;
};

}  // namespace transnormer
