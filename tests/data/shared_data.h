// Real text that tests may use where it is at hand.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <string>

namespace transnormer::test {

// ../shared/data beside the project, or what TRANSNORMER_SHARED_DATA names.
inline std::filesystem::path shared_data(const std::string& name) {
  const char* directory = std::getenv("TRANSNORMER_SHARED_DATA");
  return std::filesystem::path(directory != nullptr ? directory
                                                    : TRANSNORMER_SOURCE_DIR "/../shared/data") /
         name;
}

}  // namespace transnormer::test

// Skips the test where the file is absent.
#define TRANSNORMER_NEEDS(file)                      \
  if (!std::filesystem::exists(file)) {              \
    GTEST_SKIP() << (file).string() << " is absent"; \
  }                                                  \
  static_assert(true)
