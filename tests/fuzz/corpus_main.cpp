// Runs a fuzzer on the files of a directory: inputs that failed once, and others worth keeping.
#include <algorithm>
#include <cstdint>
#include <exception>
#include <filesystem>
#include <iostream>
#include <string>
#include <vector>

#include "fuzz/fuzzer.h"

namespace {

namespace fs = std::filesystem;

bool passes(const fs::path& file) {
  const std::string bytes = transnormer::fuzz::contents(file);
  try {
    // A copy of its own, so that a sanitizer sees where the input ends.
    const std::vector<std::uint8_t> input(bytes.begin(), bytes.end());
    LLVMFuzzerTestOneInput(input.data(), input.size());
    return true;
  } catch (const std::exception& error) {
    std::cerr << file.string() << ": " << error.what() << '\n';
    return false;
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::cerr << "usage: " << argv[0] << " DIRECTORY\n";
    return 2;
  }
  std::vector<fs::path> files(fs::directory_iterator(argv[1]), {});
  std::ranges::sort(files);
  const auto failed =
      std::ranges::count_if(files, [](const fs::path& file) { return !passes(file); });
  std::cerr << files.size() << " inputs, " << failed << " failed\n";
  return files.empty() || failed > 0 ? 1 : 0;
}
