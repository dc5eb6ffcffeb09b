#include "checkpoint/run_directory.h"

#include <unistd.h>

#include <algorithm>
#include <string>
#include <utility>

#include "checkpoint/layout.h"
#include "log/console.h"
#include "util/error.h"
#include "util/file.h"

namespace transnormer {
namespace fs = std::filesystem;
namespace {

constexpr const char* kLockFile = ".lock";

std::string holder_of(const fs::path& lock) {
  std::string process;
  try {
    process = read_file(lock);
  } catch (const UserError&) {
    return "another process";
  }
  process.erase(std::remove(process.begin(), process.end(), '\n'), process.end());
  return process.empty() ? "another process" : "process " + process;
}

FileLock lock_run(const fs::path& path) {
  make_directories(path);
  const fs::path file = path / kLockFile;
  auto lock = FileLock::try_acquire(file);
  if (!lock) {
    throw UserError(path.string() + ": " + holder_of(file) +
                    " is writing this run; wait for it or choose another --run-dir");
  }
  lock->note(std::to_string(::getpid()) + '\n');
  return std::move(*lock);
}

}  // namespace

RunDirectory::RunDirectory(fs::path path) : path_(std::move(path)), lock_(lock_run(path_)) {
  clean_checkpoints(path_ / kCheckpointsDirectory);
}

std::vector<std::int64_t> RunDirectory::checkpoint_steps() const {
  return whole_checkpoints(path_ / kCheckpointsDirectory);
}

fs::path RunDirectory::checkpoint_path(std::int64_t step) const {
  return path_ / kCheckpointsDirectory / checkpoint_name(step);
}

bool RunDirectory::holds_a_run() const {
  std::error_code error;
  const bool has_config = fs::exists(path_ / kConfigFile, error);
  return has_config || error || !checkpoint_steps().empty();
}

void RunDirectory::set_aside(const std::vector<std::int64_t>& damaged) {
  for (const std::int64_t step : damaged) {
    const fs::path aside = path_ / kCheckpointsDirectory / damaged_name(step);
    std::error_code error;
    fs::remove_all(aside, error);
    fs::rename(checkpoint_path(step), aside, error);
    if (error) {
      throw WriteError(checkpoint_path(step).string() +
                       ": cannot be set aside: " + error.message());
    }
  }
}

void RunDirectory::link_best(std::int64_t step) {
  replace_symlink(checkpoint_name(step), path_ / kCheckpointsDirectory / kBestLink);
}

std::optional<std::int64_t> RunDirectory::best_step() const {
  return linked_step(path_ / kCheckpointsDirectory / kBestLink);
}

void RunDirectory::remove_old_checkpoints(const CheckpointConfig& config) {
  const std::vector<std::int64_t> steps = checkpoint_steps();
  const auto last = std::min<std::ptrdiff_t>(config.keep_last, std::ssize(steps));
  const auto best = config.keep_best ? best_step() : std::nullopt;
  std::vector<std::int64_t> old;
  std::copy_if(steps.begin(), steps.end() - last, std::back_inserter(old), [&](std::int64_t step) {
    const bool milestone = config.keep_every > 0 && step % config.keep_every == 0;
    return !milestone && step != best;
  });
  remove(old);
}

void RunDirectory::remove_checkpoints_after(std::int64_t step) {
  std::vector<std::int64_t> newer = checkpoint_steps();
  const auto first = std::upper_bound(newer.begin(), newer.end(), step);
  if (first != newer.begin()) {
    replace_symlink(checkpoint_name(*(first - 1)), path_ / kCheckpointsDirectory / kLatestLink);
  }
  newer.erase(newer.begin(), first);
  remove(newer);
}

void RunDirectory::remove(const std::vector<std::int64_t>& steps) {
  const fs::path checkpoints = path_ / kCheckpointsDirectory;
  for (const std::int64_t step : steps) {
    try {
      remove_checkpoint(checkpoints, step);
    } catch (const WriteError& error) {
      log::warn(error.what());
    }
  }
  // A link that leads nowhere would hide the checkpoints that are there.
  const fs::path best = checkpoints / kBestLink;
  std::error_code ignored;
  if (fs::is_symlink(fs::symlink_status(best, ignored)) && !best_step()) {
    fs::remove(best, ignored);
  }
}

}  // namespace transnormer
