// runs/NAME: its lock, its checkpoints, what is kept of them.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <vector>

#include "config/config.h"
#include "util/file_lock.h"

namespace transnormer {

class RunDirectory {
 public:
  // Makes the directory where missing, locks it (`.lock`, which tells the process), and removes
  // what a killed save left. Throws UserError where another process holds it (naming directory and
  // process), WriteError where it cannot be written.
  explicit RunDirectory(std::filesystem::path path);

  [[nodiscard]] const std::filesystem::path& path() const { return path_; }
  // Steps of the whole checkpoints (manifest present), ascending. Left-over temporary directories
  // of a save that was killed are removed when the directory is opened.
  [[nodiscard]] std::vector<std::int64_t> checkpoint_steps() const;
  [[nodiscard]] std::filesystem::path checkpoint_path(std::int64_t step) const;
  // True where a run has been here (a config or checkpoints).
  [[nodiscard]] bool holds_a_run() const;

  // Takes damaged checkpoints out of the run: they stay beside the others as
  // `.damaged-step-XXXXXXXX`, in the place of an earlier one of the same step.
  void set_aside(const std::vector<std::int64_t>& damaged);

  void link_best(std::int64_t step);
  [[nodiscard]] std::optional<std::int64_t> best_step() const;
  // Removes checkpoints that neither keep_last, keep_every, nor `best` (with keep_best) holds. What
  // cannot be removed is logged and stays.
  void remove_old_checkpoints(const CheckpointConfig& config);
  // Removes checkpoints after `step` (a resume from an older one leaves the newer behind) and moves
  // `latest` back; `best` goes where it led to one of them.
  void remove_checkpoints_after(std::int64_t step);

 private:
  void remove(const std::vector<std::int64_t>& steps);

  std::filesystem::path path_;
  FileLock lock_;
};

}  // namespace transnormer
