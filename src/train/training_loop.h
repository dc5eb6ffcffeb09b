// The loop over the updates of a run that is set up.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "log/progress.h"
#include "task/batch_loader.h"
#include "train/events.h"
#include "train/gradient_statistics.h"
#include "train/meter.h"
#include "train/saver.h"
#include "train/training_run.h"
#include "train/update_step.h"
#include "util/error.h"

namespace transnormer {

class TrainingLoop {
 public:
  // Both must outlive the loop.
  TrainingLoop(TrainingRun& run, Events& events);
  ~TrainingLoop();
  TrainingLoop(const TrainingLoop&) = delete;
  TrainingLoop& operator=(const TrainingLoop&) = delete;

  // Goes on to the end of training or until a signal asks to stop, then saves. Only sound states
  // are saved (soundness.h); what was due in another is made up for in the next sound one. Throws
  // Divergence; nothing is saved then. What else fails on the way (the data can no longer be
  // read, no memory) is thrown on after saving the state, if that is whole; in a world of several
  // nothing is saved then.
  [[nodiscard]] ExitStatus run();

 private:
  // What one update found; the gradients themselves are with the parameters.
  struct Update {
    UpdateStep::Measured measured;
    double lr = 0;
    std::map<std::string, RunningMoments> moments;          // with this update's, where due
    std::map<std::string, log::GradientStats> statistics;   // empty unless due
    std::map<std::string, std::vector<double>> histograms;  // empty unless due
  };

  [[nodiscard]] bool go_on();  // to the end: true; false where a signal or the time cut it short

  // One update and its events. False where training is to stop here: by a signal, which may come
  // half-way (the state is then that of before), or since its time is over.
  bool make_update();
  // What this process asks for: to stop by SIGINT, by SIGTERM, to save, to end since
  // train.max_hours are over; above 0: asked. The ranks add them up.
  [[nodiscard]] std::vector<double> wishes() const;
  // Notes what is asked for.
  void agree(const std::vector<double>& wishes);
  [[nodiscard]] bool is_to_be_applied(const Update& update);
  // Of a finite update, as far as they are due.
  void measure_statistics(Update& update);
  void count(const Update& update);
  // Of the updates since the last event.
  [[nodiscard]] Report report_of_sums() const;
  // Whether training may end with the present step, as far as is known before its validation.
  [[nodiscard]] bool may_end_here() const;
  void report(Update update);
  // Throws DivergedError where the losses of the last updates say so.
  void judge(const Update& update);
  [[noreturn]] void diverge(const std::string& where, const std::string& why,
                            std::int64_t sound_until);

  // Validation, end and checkpoint, as far as the present step asks for them. Also makes up for a
  // validation that was cut short before a resume. False where a signal cut it short now.
  bool finish_step();
  // Notes what the present step asks for. Returns whether that is anything new.
  bool note_what_is_due();
  void wait_for_a_sound_state(const std::string& fault, bool tell);
  bool validate();
  void save();  // begins to
  // Until what was saved is on disk, or is known not to be.
  void wait_for_save();
  std::string wait_for_first(const std::function<std::string()>& word);
  // Saves where the state is sound; tells how the run can go on.
  std::string save_and_tell();
  // After a fault that ends training: saves the state before it, if that is whole; tells so.
  std::string outcome_of_fault();
  // Whether a save or a record of the log failed on the way.
  [[nodiscard]] bool has_losses() const;
  // Whether it ends here for train.max_hours: with a state that can be saved, before the last step.
  [[nodiscard]] bool ends_by_time() const;
  ExitStatus stop(ExitStatus status);
  ExitStatus end_by_time();
  ExitStatus end();

  TrainingRun& run_;
  Events& events_;
  const Config& config_;
  TrainingState& state_;
  BatchLoader loader_;
  UpdateStep step_;
  GradientStatistics statistics_;
  Saver saver_;
  Meter meter_;
  log::ProgressBar bar_;
  std::int64_t saved_step_;         // the state of which is on disk, or being written, as it is
  std::int64_t applied_step_;       // of the last update that changed the weights
  bool is_amid_change_ = false;     // of weights or state: neither that before an update nor after
  std::optional<ExitStatus> stop_;  // asked for
  bool save_is_asked_ = false;
  bool time_is_over_ = false;
  bool validation_due_ = false;
  bool save_due_;
};

}  // namespace transnormer
