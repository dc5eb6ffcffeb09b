// A directory for one test, removed with everything in it.
#pragma once

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <stdexcept>
#include <string>

namespace transnormer::test {

class TemporaryDirectory {
 public:
  TemporaryDirectory() {
    // In memory where there is such a place: files that are flushed to a disk take their time.
    for (const std::filesystem::path& parent :
         {std::filesystem::path("/dev/shm"), std::filesystem::path(::testing::TempDir())}) {
      std::string name = (parent / "transnormer-XXXXXX").string();
      if (::mkdtemp(name.data()) != nullptr) {
        path_ = name;
        return;
      }
    }
    throw std::runtime_error("no temporary directory can be made");
  }
  ~TemporaryDirectory() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TemporaryDirectory(const TemporaryDirectory&) = delete;
  TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;

  [[nodiscard]] const std::filesystem::path& path() const { return path_; }
  [[nodiscard]] std::filesystem::path operator/(const std::string& name) const {
    return path_ / name;
  }

 private:
  std::filesystem::path path_;
};

}  // namespace transnormer::test
