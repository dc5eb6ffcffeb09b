#include "checkpoint/layout.h"

#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>
#include <system_error>
#include <utility>

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

[[noreturn]] void fail_to_read(const fs::path& path, const std::error_code& error) {
  throw UserError(path.string() + ": cannot be read: " + error.message());
}

std::optional<std::int64_t> step_behind(std::string_view prefix, std::string_view name) {
  return name.starts_with(prefix) ? checkpoint_step(name.substr(prefix.size())) : std::nullopt;
}

// The step of the best validation, as a checkpoint's state has it. A hint: what is wrong with the
// state shows when the checkpoint is opened.
std::optional<std::int64_t> best_step_in(const fs::path& checkpoint) {
  try {
    const auto state = nlohmann::json::parse(read_regular_file(checkpoint / kStateFile));
    return state.at("best_step").get<std::int64_t>();
  } catch (const std::exception&) {
    return std::nullopt;
  }
}

std::vector<std::int64_t> whole_among(const std::vector<fs::path>& entries) {
  std::vector<std::int64_t> steps;
  for (const fs::path& path : entries) {
    const auto step = checkpoint_step(path.filename().string());
    if (step && is_whole_checkpoint(path)) {
      steps.push_back(*step);
    }
  }
  std::sort(steps.begin(), steps.end());
  return steps;
}

}  // namespace

std::string checkpoint_name(std::int64_t step) {
  std::string digits = std::to_string(step);
  if (digits.size() < kStepDigits) {
    digits.insert(0, kStepDigits - digits.size(), '0');
  }
  return std::string(kStepPrefix) + digits;
}

std::optional<std::int64_t> checkpoint_step(std::string_view name) {
  if (!name.starts_with(kStepPrefix)) {
    return std::nullopt;
  }
  std::int64_t step = 0;
  const char* end = name.data() + name.size();
  const auto [stop, error] = std::from_chars(name.data() + kStepPrefix.size(), end, step);
  if (error != std::errc() || stop != end || step < 0 || checkpoint_name(step) != name) {
    return std::nullopt;
  }
  return step;
}

std::string temporary_name(std::int64_t step) {
  return std::string(kTemporaryPrefix) + checkpoint_name(step) + '.' + std::to_string(::getpid());
}

std::optional<std::int64_t> temporary_step(std::string_view name) {
  const std::size_t dot = name.rfind('.');
  const bool has_number = dot != 0 && dot != std::string_view::npos && dot + 1 < name.size() &&
                          name.find_first_not_of("0123456789", dot + 1) == std::string_view::npos;
  return step_behind(kTemporaryPrefix, has_number ? name.substr(0, dot) : name);
}

std::string replaced_name(std::int64_t step) {
  return std::string(kReplacedPrefix) + checkpoint_name(step);
}

std::optional<std::int64_t> replaced_step(std::string_view name) {
  return step_behind(kReplacedPrefix, name);
}

std::string damaged_name(std::int64_t step) {
  return std::string(kDamagedPrefix) + checkpoint_name(step);
}

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

bool is_whole_checkpoint(const fs::path& directory) {
  std::error_code error;
  const fs::file_status status = fs::status(directory / kManifestFile, error);
  if (error == std::errc::too_many_symbolic_link_levels) {
    return fs::is_directory(directory, error);
  }
  if (error && status.type() != fs::file_type::not_found) {
    fail_to_read(directory / kManifestFile, error);
  }
  return fs::is_regular_file(status);
}

std::vector<std::int64_t> whole_checkpoints(const fs::path& checkpoints) {
  std::optional<std::vector<fs::path>> seen;
  for (;;) {
    std::vector<fs::path> entries = entries_of(checkpoints);
    std::vector<std::int64_t> steps = whole_among(entries);
    if (!steps.empty() || entries == seen) {
      return steps;
    }
    seen = std::move(entries);
  }
}

std::optional<std::int64_t> linked_step(const fs::path& link) {
  std::error_code error;
  const fs::path target = fs::read_symlink(link, error);
  return error ? std::nullopt : checkpoint_step(target.string());
}

std::optional<std::int64_t> best_checkpoint(const fs::path& checkpoints,
                                            const std::vector<std::int64_t>& steps) {
  const auto is_there = [&steps](std::optional<std::int64_t> step) {
    return step && std::binary_search(steps.begin(), steps.end(), *step);
  };
  const auto told = best_step_in(checkpoints / checkpoint_name(steps.back()));
  if (is_there(told)) {
    return told;
  }
  const auto linked = linked_step(checkpoints / kBestLink);
  const bool none_counts = told && *told < 0;
  return is_there(linked) && !none_counts ? linked : std::nullopt;
}

}  // namespace transnormer
