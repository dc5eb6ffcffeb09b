// What the tests of the data layer share.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <string>

#include "util/error.h"
#include "util/file.h"
#include "util/temporary_directory.h"

namespace transnormer::test {

// The fault that this throws, "none" where it throws none.
inline std::string fault_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const UserError& error) {
    return error.what();
  }
  return "none";
}

// Writes a file without waiting for the disk.
inline void put(const std::filesystem::path& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}

// Another bit at this place of the file.
inline void flip_bit(const std::filesystem::path& path, std::size_t place) {
  std::string bytes = read_file(path);
  bytes.at(place) = static_cast<char>(bytes.at(place) ^ 4);
  put(path, bytes);
}

}  // namespace transnormer::test
