// A temporary directory with a small text, and training runs of a second on it.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "log/events.h"
#include "train/events.h"
#include "train/trainer.h"
#include "train/training_run.h"

namespace transnormer {

// Keeps what was reported.
struct Recorded {
  std::vector<log::TrainEvent> train;
  std::vector<log::ValidEvent> valid;
  std::vector<log::NoteEvent> notes;
  std::function<void(const log::NoteEvent&)> on_note;

  [[nodiscard]] std::vector<std::string> names() const;  // of the notes
};

class SmallRun {
 public:
  SmallRun();
  ~SmallRun();
  SmallRun(const SmallRun&) = delete;
  SmallRun& operator=(const SmallRun&) = delete;

  [[nodiscard]] const std::filesystem::path& path() const { return path_; }
  void write(const std::string& name, const std::string& text) const;

  // The small config with these settings ("a.b=v"), to be run in the directory `name`.
  [[nodiscard]] TrainRequest request(const std::string& name,
                                     const std::vector<std::string>& sets = {}) const;
  [[nodiscard]] ExitStatus train(const std::string& name,
                                 const std::vector<std::string>& sets = {}) const;

  // "model.safetensors" and the like of a checkpoint.
  [[nodiscard]] std::string file_of(const std::string& name, std::int64_t step,
                                    const std::string& file) const;
  [[nodiscard]] bool has_checkpoint(const std::string& name, std::int64_t step) const;
  [[nodiscard]] std::filesystem::path checkpoint(const std::string& name, std::int64_t step) const;

 private:
  std::filesystem::path path_;
};

// Runs the loop of a run that is set up, without its files for metrics, and keeps what it reports.
ExitStatus run_loop(TrainingRun& run, Recorded& recorded);

// Makes one parameter's gradient not-a-number in the updates after `first` and up to `last` made.
void poison_gradients(TrainingRun& run, std::int64_t first, std::int64_t last);

// Everything in state.json but the time it took.
void expect_same_state(const SmallRun& runs, const std::string& first, const std::string& second,
                       std::int64_t step);

// Weights and optimizer of two checkpoints have the same bytes.
void expect_same_weights(const SmallRun& runs, const std::string& first, const std::string& second,
                         std::int64_t step);

// Some words, `tokens` in all with the line ends.
[[nodiscard]] std::string small_text(int tokens, unsigned seed);

}  // namespace transnormer
