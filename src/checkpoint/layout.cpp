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
constexpr std::string_view kDamagedPrefix = ".damaged-";
constexpr std::size_t kStepDigits = 8;

// What replace_symlink() leaves when it is killed: "latest.tmp.123".
bool is_temporary_link(const std::string& name) {
  return name.starts_with(std::string(kLatestLink) + ".tmp.") ||
         name.starts_with(std::string(kBestLink) + ".tmp.");
}

[[noreturn]] void fail_to_read(const fs::path& path, const std::error_code& error) {
  throw UserError(path.string() + ": cannot be read: " + error.message());
}

// What a directory holds; nothing where it does not exist.
std::vector<fs::path> entries_of(const fs::path& directory) {
  std::vector<fs::path> paths;
  std::error_code error;
  for (fs::directory_iterator entry(directory, error), end; !error && entry != end;
       entry.increment(error)) {
    paths.push_back(entry->path());
  }
  if (error && error != std::errc::no_such_file_or_directory) {
    fail_to_read(directory, error);
  }
  return paths;
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

std::string damaged_name(std::int64_t step) {
  return std::string(kDamagedPrefix) + checkpoint_name(step);
}

bool is_whole_checkpoint(const fs::path& directory) {
  std::error_code error;
  const fs::file_status status = fs::status(directory / kManifestFile, error);
  if (error && status.type() != fs::file_type::not_found) {
    fail_to_read(directory / kManifestFile, error);
  }
  return fs::is_regular_file(status);
}

std::vector<std::int64_t> whole_checkpoints(const fs::path& checkpoints) {
  std::vector<std::int64_t> steps;
  for (const fs::path& path : entries_of(checkpoints)) {
    const auto step = checkpoint_step(path.filename().string());
    if (step && is_whole_checkpoint(path)) {
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
  for (const fs::path& path : entries_of(checkpoints)) {
    const std::string name = path.filename().string();
    std::error_code error;
    if (name.starts_with(kReplacedPrefix)) {
      const fs::path original = checkpoints / name.substr(kReplacedPrefix.size());
      if (!fs::exists(original, error) && !error) {
        fs::rename(path, original, error);
      } else if (!error) {
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
