#include "ops/trust/verdict.h"

#include <algorithm>
#include <cstdlib>
#include <sstream>

#include "ops/trust/trials.h"
#include "util/error.h"
#include "util/file.h"
#include "util/hash.h"

namespace transnormer::ops {
namespace fs = std::filesystem;
namespace {

constexpr std::int64_t kLargestFile = 1 << 16;
constexpr const char* kAgrees = "agrees";

std::string printable(std::string text) {
  std::replace(text.begin(), text.end(), '\n', ' ');
  return text;
}

// A digest at the end, so that what is cut short or changed is no verdict.
std::string header_of(const VerdictKey& key) {
  return "transnormer kernels 2\ndevice: " + printable(key.device) +
         "\ndriver: " + printable(key.driver) + "\nbuild: " + printable(key.build) + '\n';
}

std::string with_digest(const std::string& text) {
  return text + "sha256: " + sha256(text) + '\n';
}

fs::path name_of(const VerdictKey& key) {
  constexpr std::size_t kDigits = 16;
  return "transnormer-kernels-" + sha256(header_of(key)).substr(0, kDigits) + ".txt";
}

// A line "name: fault" for each kernel, in the order of the trials.
std::optional<Faults> parse(const std::string& text, const VerdictKey& key) {
  const std::string header = header_of(key);
  const std::size_t last = text.rfind("sha256: ");
  if (!text.starts_with(header) || last == std::string::npos || last < header.size() ||
      text != with_digest(text.substr(0, last))) {
    return std::nullopt;
  }
  std::istringstream lines(text.substr(header.size(), last - header.size()));
  Faults faults;
  std::string line;
  for (const KernelTrial& trial : kernel_trials()) {
    const std::string start = trial.kernel + ": ";
    if (!std::getline(lines, line) || !line.starts_with(start)) {
      return std::nullopt;
    }
    if (const std::string fault = line.substr(start.size()); fault != kAgrees) {
      faults[trial.kernel] = fault;
    }
  }
  return std::getline(lines, line) ? std::nullopt : std::optional(faults);
}

}  // namespace

std::optional<Faults> load_verdict(const VerdictKey& key, const std::vector<fs::path>& folders) {
  for (const fs::path& folder : folders) {
    try {
      if (auto faults = parse(read_regular_file(folder / name_of(key), kLargestFile), key)) {
        return faults;
      }
    } catch (const UserError&) {
    }
  }
  return std::nullopt;
}

void save_verdict(const VerdictKey& key, const Faults& faults,
                  const std::vector<fs::path>& folders) {
  std::string text = header_of(key);
  for (const KernelTrial& trial : kernel_trials()) {
    const auto fault = faults.find(trial.kernel);
    text +=
        trial.kernel + ": " + (fault == faults.end() ? kAgrees : printable(fault->second)) + '\n';
  }
  for (const fs::path& folder : folders) {
    try {
      make_directories(folder);
      write_file_atomically(folder / name_of(key), with_digest(text));
      return;
    } catch (const WriteError&) {
    }
  }
}

std::optional<fs::path> user_cache() {
  const auto from = [](const char* name) {
    const char* value = std::getenv(name);
    return fs::path(value == nullptr ? "" : value);
  };
  if (const fs::path cache = from("XDG_CACHE_HOME"); cache.is_absolute()) {
    return cache / "transnormer";
  }
  if (const fs::path home = from("HOME"); home.is_absolute()) {
    return home / ".cache" / "transnormer";
  }
  return std::nullopt;
}

}  // namespace transnormer::ops
