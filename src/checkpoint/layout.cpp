#include "checkpoint/layout.h"

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <system_error>

#include "util/error.h"
#include "util/file.h"

namespace transnormer {
namespace fs = std::filesystem;
namespace {

constexpr std::string_view kStepPrefix = "step-";
constexpr std::string_view kTemporaryPrefix = ".tmp-";
constexpr std::string_view kReplacedPrefix = ".old-";
constexpr std::size_t kStepDigits = 8;

// What replace_symlink() leaves when it is killed: "latest.tmp.123".
bool is_temporary_link(const std::string& name) {
  return name.starts_with(std::string(kLatestLink) + ".tmp.") ||
         name.starts_with(std::string(kBestLink) + ".tmp.");
}

}  // namespace

std::string checkpoint_name(std::int64_t step) {
  std::string digits = std::to_string(step);
  if (digits.size() < kStepDigits) {
    digits.insert(0, kStepDigits - digits.size(), '0');
  }
  return std::string(kStepPrefix) + digits;
}

std::optional<std::int64_t> checkpoint_step(const std::string& name) {
  if (!name.starts_with(kStepPrefix)) {
    return std::nullopt;
  }
  std::int64_t step = 0;
  const char* end = name.data() + name.size();
  const auto [stop, error] = std::from_chars(name.data() + kStepPrefix.size(), end, step);
  if (error != std::errc() || stop != end || checkpoint_name(step) != name) {
    return std::nullopt;
  }
  return step;
}

std::string temporary_name(std::int64_t step) {
  return std::string(kTemporaryPrefix) + checkpoint_name(step);
}

std::string replaced_name(std::int64_t step) {
  return std::string(kReplacedPrefix) + checkpoint_name(step);
}

bool is_whole_checkpoint(const fs::path& directory) {
  std::error_code ignored;
  return fs::is_regular_file(directory / kManifestFile, ignored);
}

std::vector<std::int64_t> whole_checkpoints(const fs::path& checkpoints) {
  std::vector<std::int64_t> steps;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(checkpoints, error)) {
    const auto step = checkpoint_step(entry.path().filename().string());
    if (step && is_whole_checkpoint(entry.path())) {
      steps.push_back(*step);
    }
  }
  std::sort(steps.begin(), steps.end());
  return steps;
}

std::optional<std::int64_t> linked_step(const fs::path& link) {
  std::error_code error;
  const fs::path target = fs::read_symlink(link, error);
  if (error || !is_whole_checkpoint(link)) {
    return std::nullopt;
  }
  return checkpoint_step(target.filename().string());
}

void remove_checkpoint(const fs::path& checkpoints, std::int64_t step) {
  const fs::path temporary = checkpoints / temporary_name(step);
  std::error_code error;
  fs::remove_all(temporary, error);
  fs::rename(checkpoints / checkpoint_name(step), temporary, error);
  if (!error) {
    fs::remove_all(temporary, error);
  }
  if (error) {
    throw WriteError((checkpoints / checkpoint_name(step)).string() +
                     ": cannot be removed: " + error.message());
  }
}

void clean_checkpoints(const fs::path& checkpoints) {
  std::error_code error;
  std::vector<fs::path> found;
  for (const auto& entry : fs::directory_iterator(checkpoints, error)) {
    found.push_back(entry.path());
  }
  for (const fs::path& path : found) {
    const std::string name = path.filename().string();
    error.clear();
    if (name.starts_with(kReplacedPrefix)) {
      const fs::path original = checkpoints / name.substr(kReplacedPrefix.size());
      if (!fs::exists(original)) {
        fs::rename(path, original, error);
      } else {
        fs::remove_all(path, error);
      }
    } else if (name.starts_with(kTemporaryPrefix) || is_temporary_link(name)) {
      fs::remove_all(path, error);
    }
    if (error) {
      throw WriteError(path.string() + ": a left-over cannot be removed: " + error.message());
    }
  }
}

}  // namespace transnormer
