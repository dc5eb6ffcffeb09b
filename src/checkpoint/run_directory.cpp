#include "checkpoint/run_directory.h"

#include <stdio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "checkpoint/layout.h"
#include "checkpoint/removal.h"
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
    process = read_regular_file(lock, 64);
  } catch (const UserError&) {
    return "another process";
  }
  process.erase(std::remove(process.begin(), process.end(), '\n'), process.end());
  return process.empty() ? "another process" : "process " + process;
}

FileLock lock_run(const fs::path& path, NewEntries& new_entries) {
  new_entries.make_directories(path);
  const fs::path file = path / kLockFile;
  auto lock = FileLock::try_acquire(file);
  if (!lock) {
    throw UserError(path.string() + ": " + holder_of(file) +
                    " is writing this run; wait for it or choose another --run-dir");
  }
  if (lock->made_file()) {
    new_entries.add_file(file);
  }
  lock->note(std::to_string(::getpid()) + '\n');
  return *std::move(lock);
}

// A checkpoint's files are the checkpoint's alone.
fs::path place_for_run(const fs::path& path) {
  if (is_whole_checkpoint(path)) {
    throw UserError(path.string() +
                    ": is a checkpoint, and a run needs a directory of its own; choose another "
                    "--run-dir");
  }
  return resolve_path(path);
}

// Gives it this name beside it, with a number behind where that is taken.
fs::path rename_aside(const fs::path& path, const std::string& name) {
  fs::path aside = path.parent_path() / name;
  for (int number = 1; has_entry(aside); ++number) {
    aside = path.parent_path() / (name + '.' + std::to_string(number));
  }
  if (::rename(path.c_str(), aside.c_str()) != 0) {
    throw WriteError(path.string() + ": cannot be set aside: " + system_reason(errno));
  }
  return aside;
}

// Whether the config that a checkpoint was saved with keeps it for good, or may: where it cannot be
// read, or is that of a newer format.
bool is_milestone(const fs::path& checkpoint, std::int64_t step) {
  try {
    const auto config = nlohmann::json::parse(read_regular_file(checkpoint / kConfigFile));
    const auto every = config.at("checkpoint").at("keep_every").get<std::int64_t>();
    return every > 0 && step % every == 0;
  } catch (const std::exception&) {
    return true;
  }
}

}  // namespace

RunDirectory::RunDirectory(const fs::path& path)
    : path_(place_for_run(path)), lock_(lock_run(path_, new_entries_)) {
  try {
    clean_run_files(path_);
    clean_checkpoints(checkpoints());
  } catch (...) {  // no destructor runs after this
    end_trial();
    throw;
  }
}

RunDirectory RunDirectory::of_another(fs::path resolved) {
  RunDirectory directory;
  directory.path_ = std::move(resolved);
  return directory;
}

RunDirectory::~RunDirectory() {
  end_trial();
}

void RunDirectory::end_trial() {
  if (is_ours()) {
    new_entries_.remove();  // while nobody else can have the lock
  } else {
    new_entries_.keep();
  }
}

void RunDirectory::keep() {
  new_entries_.keep();
}

std::vector<std::string> RunDirectory::warnings() const {
  std::vector<std::string> warnings;
  if (!lock_->works()) {
    warnings.push_back(path_.string() +
                       ": this file system has no locks, so a second process that writes this run "
                       "would not be noticed; start only one");
  }
  if (!can_flush(path_ / kLockFile)) {
    warnings.push_back(path_.string() +
                       ": this file system cannot flush files, so a power cut may damage the "
                       "newest checkpoints");
  }
  return warnings;
}

bool RunDirectory::is_ours() const {
  return lock_ && lock_->is_at(path_ / kLockFile);
}

void RunDirectory::require_ours() const {
  if (!is_ours()) {
    throw WriteError(path_.string() +
                     ": is no longer the directory of this run: it, or the .lock in it, was "
                     "removed, moved or replaced");
  }
}

std::vector<std::int64_t> RunDirectory::checkpoint_steps() const {
  return whole_checkpoints(checkpoints());
}

fs::path RunDirectory::checkpoint_path(std::int64_t step) const {
  return checkpoints() / checkpoint_name(step);
}

bool RunDirectory::holds_a_run() const {
  std::error_code error;
  const bool has_config = fs::exists(path_ / kConfigFile, error);
  return has_config || error || !checkpoint_steps().empty();
}

void RunDirectory::set_aside(const std::vector<std::int64_t>& damaged) {
  require_ours();
  for (const std::int64_t step : damaged) {
    (void)rename_aside(checkpoint_path(step), damaged_name(step));
  }
}

fs::path RunDirectory::set_aside_config() {
  require_ours();
  return rename_aside(path_ / kConfigFile, std::string(".damaged-") + kConfigFile);
}

void RunDirectory::link(const CheckpointConfig& config, std::int64_t best_step) {
  require_ours();
  const std::vector<std::int64_t> steps = checkpoint_steps();
  if (!steps.empty()) {
    set_link(kLatestLink, steps.back());
  }
  const fs::path best = checkpoints() / kBestLink;
  if (config.keep_best && std::binary_search(steps.begin(), steps.end(), best_step)) {
    set_link(kBestLink, best_step);
  } else if (linked_step(best) && (!config.keep_best || !is_whole_checkpoint(best))) {
    ::unlink(best.c_str());
  }
}

void RunDirectory::set_link(const char* name, std::int64_t step) {
  const std::optional<std::int64_t> linked = linked_step(checkpoints() / name);
  if (linked == step) {
    return;
  }
  try {
    if (is_link(checkpoints() / name) && !linked) {
      throw WriteError((checkpoints() / name).string() +
                       ": is a link to something else than a checkpoint beside it, and stays");
    }
    replace_symlink(checkpoint_name(step), checkpoints() / name);
  } catch (const WriteError& error) {
    if (!std::exchange(links_failed_, true)) {
      log::warn(std::string(error.what()) +
                "; the newest checkpoint is that of the highest step all the same");
    }
  }
}

void RunDirectory::remove_old_checkpoints(const CheckpointConfig& config, std::int64_t best_step,
                                          std::int64_t sound_step) {
  const std::vector<std::int64_t> steps = checkpoint_steps();
  const auto last = std::min<std::ptrdiff_t>(config.keep_last, std::ssize(steps));
  const bool has_best = std::binary_search(steps.begin(), steps.end(), best_step);
  const auto best = has_best ? std::optional(best_step) : linked_step(checkpoints() / kBestLink);
  const auto after_sound = std::upper_bound(steps.begin(), steps.end(), sound_step);
  const auto sound =
      after_sound == steps.begin() ? std::nullopt : std::optional(*(after_sound - 1));
  std::vector<std::int64_t> old;
  std::copy_if(steps.begin(), steps.end() - last, std::back_inserter(old), [&](std::int64_t step) {
    const bool is_best = config.keep_best && step == best;
    const bool kept_now = config.keep_every > 0 && step % config.keep_every == 0;
    return !is_best && step != sound && !kept_now && !is_link(checkpoint_path(step)) &&
           !is_milestone(checkpoint_path(step), step);
  });
  remove(old);
}

void RunDirectory::remove_checkpoints_after(std::int64_t step) {
  std::vector<std::int64_t> newer = checkpoint_steps();
  newer.erase(newer.begin(), std::upper_bound(newer.begin(), newer.end(), step));
  remove(newer);
}

void RunDirectory::remove(const std::vector<std::int64_t>& steps) {
  require_ours();
  for (const std::int64_t step : steps) {
    try {
      remove_checkpoint(checkpoints(), step);
    } catch (const UserError& error) {
      log::warn(error.what());
    }
  }
}

fs::path RunDirectory::checkpoints() const {
  return path_ / kCheckpointsDirectory;
}

}  // namespace transnormer
