// runs/NAME: its lock, its checkpoints, what is kept of them.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/new_entries.h"
#include "config/config.h"
#include "util/file_lock.h"

namespace transnormer {

class RunDirectory {
 public:
  // Resolves the path (".", "..", links), makes the directory where missing, locks it (`.lock`,
  // which tells the process), and removes what a killed save left. Throws UserError where another
  // process holds it (naming directory and process) and where it is a checkpoint, WriteError where
  // it cannot be written.
  // Until keep() is called the directory is on trial: what was made of it then goes again with this
  // object, entry by entry, and nothing else does.
  explicit RunDirectory(const std::filesystem::path& path);
  // The directory that another process of this job has locked: to be looked at only.
  [[nodiscard]] static RunDirectory of_another(std::filesystem::path resolved);
  ~RunDirectory();
  RunDirectory(RunDirectory&&) = default;

  // From here on the directory is a run's and stays.
  void keep();

  [[nodiscard]] const std::filesystem::path& path() const { return path_; }
  // What people must know about the file system: that it cannot lock, or not flush.
  [[nodiscard]] std::vector<std::string> warnings() const;

  // Whether this directory is still the one that was locked: not removed, moved or replaced, nor
  // its lock. Nothing is removed or written where it is not: what changes checkpoints asks first.
  [[nodiscard]] bool is_ours() const;
  void require_ours() const;  // throws WriteError

  // Steps of the whole checkpoints (manifest present), ascending. Left-over temporary directories
  // of a save that was killed are removed when the directory is opened.
  [[nodiscard]] std::vector<std::int64_t> checkpoint_steps() const;
  [[nodiscard]] std::filesystem::path checkpoint_path(std::int64_t step) const;
  // True where a run has been here (a config or checkpoints).
  [[nodiscard]] bool holds_a_run() const;

  // Takes damaged checkpoints out of the run: they stay beside the others as
  // `.damaged-step-XXXXXXXX`, with a number behind where there is one of that name.
  void set_aside(const std::vector<std::int64_t>& damaged);
  // The same of config.json, as `.damaged-config.json`. Returns its place.
  std::filesystem::path set_aside_config();

  // Points `latest` to the newest checkpoint, and `best` to that of `best_step`, where it is there;
  // where none is kept (keep_best), or where it led is gone, `best` goes. A convenience for people:
  // what cannot be linked is told once, and what is no link stays as it is.
  void link(const CheckpointConfig& config, std::int64_t best_step);
  // Removes checkpoints that nothing holds: not keep_last, not keep_every (the config's or that of
  // the config in the checkpoint), and with keep_best not the best one, that of `best_step` or, if
  // there is none (yet), what `best` leads to; the newest one up to `sound_step` stays, too, and
  // links to checkpoints elsewhere. What
  // cannot be removed is logged and stays.
  void remove_old_checkpoints(const CheckpointConfig& config, std::int64_t best_step,
                              std::int64_t sound_step = -1);
  // Removes checkpoints after `step`: a resume from an older one leaves the newer behind.
  void remove_checkpoints_after(std::int64_t step);

 private:
  RunDirectory() = default;
  [[nodiscard]] std::filesystem::path checkpoints() const;
  void end_trial();  // what was made goes, unless it was kept or is no longer ours
  void set_link(const char* name, std::int64_t step);
  void remove(const std::vector<std::int64_t>& steps);

  std::filesystem::path path_;
  NewEntries new_entries_;
  std::optional<FileLock> lock_;  // nothing where another process has it
  bool links_failed_ = false;
};

}  // namespace transnormer
