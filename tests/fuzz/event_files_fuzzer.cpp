// TensorBoard's event files of former sessions, of which a resume reads the names: one a line.
#include <algorithm>
#include <filesystem>
#include <set>
#include <string>
#include <string_view>

#include "fuzz/fuzzer.h"
#include "log/events.h"

namespace {

namespace fs = std::filesystem;
namespace fuzz = transnormer::fuzz;

constexpr std::string_view kPrefix = "events.out.tfevents.";

std::set<std::string> names_in(const fs::path& directory) {
  std::set<std::string> names;
  for (const auto& entry : fs::directory_iterator(directory)) {
    names.insert(entry.path().filename().string());
  }
  return names;
}

// Makes empty files of those names that a file can have.
void make_files(const fs::path& directory, std::string_view names) {
  constexpr std::size_t kLongest = 255;
  fs::remove_all(directory);
  fs::create_directory(directory);
  while (!names.empty()) {
    const std::string_view name = names.substr(0, names.find('\n'));
    const bool is_name = !name.empty() && name != "." && name != ".." && name.size() <= kLongest &&
                         name.find('/') == std::string_view::npos &&
                         name.find('\0') == std::string_view::npos;
    if (is_name) {
      fuzz::put((directory.filename() / name).string(), "");
    }
    names.remove_prefix(std::min(name.size() + 1, names.size()));
  }
}

// Stamps of ten digits, as they are until the year 2286, save those that leave no room behind them.
bool has_usual_stamp(std::string_view name) {
  const std::string_view stamp = name.substr(std::min(kPrefix.size(), name.size()));
  const auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
  return name.starts_with(kPrefix) && stamp.size() > 10 && stamp[10] == '.' && stamp[0] > '0' &&
         std::ranges::all_of(stamp.substr(0, 10), is_digit) && !stamp.starts_with("9999999999");
}

}  // namespace

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const fs::path directory = fuzz::scratch() / "tensorboard";
  make_files(directory, fuzz::bytes_of(data, size));
  const std::set<std::string> before = names_in(directory);
  fuzz::reads([&] {
    static_cast<void>(transnormer::log::make_tensorboard_sink(directory, 1));
    std::set<std::string> made = names_in(directory);
    std::erase_if(made, [&](const std::string& name) { return before.contains(name); });
    fuzz::require(made.size() == 1, "a session has a file of its own");
    for (const std::string& name : before) {
      fuzz::require(!has_usual_stamp(name) || name < *made.begin(), "the new file comes last");
    }
  });
  return 0;
}
