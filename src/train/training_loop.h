// The loop over the updates of a run that is set up.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "data/batches.h"
#include "log/progress.h"
#include "model/graphed_pass.h"
#include "train/events.h"
#include "train/gradient_statistics.h"
#include "train/meter.h"
#include "train/saver.h"
#include "train/training_run.h"
#include "util/error.h"

namespace transnormer {

class TrainingLoop {
 public:
  // Both must outlive the loop.
  TrainingLoop(TrainingRun& run, Events& events);

  // Goes on to the end of training or until a signal asks to stop, then saves. Only sound states
  // are saved (soundness.h); what was due in another is made up for in the next sound one. Throws
  // DivergedError; nothing is saved then. What else fails on the way (the data can no longer be
  // read, no memory) is thrown on after saving the state, if that is whole.
  [[nodiscard]] ExitStatus run();

 private:
  // What one update found; the gradients themselves are with the parameters.
  struct Update {
    double nll = 0;  // summed over its tokens
    std::int64_t tokens = 0;
    double lr = 0;
    double grad_norm = 0;                                   // before clipping
    at::Tensor norms;                                       // of each gradient
    std::map<std::string, log::GradientStats> statistics;   // empty unless due
    std::map<std::string, std::vector<double>> histograms;  // empty unless due
  };

  [[nodiscard]] bool go_on();  // to the end: true; false where a signal cut it short

  // One update and its events. False where a signal stopped it half-way; the state is then that of
  // before.
  bool make_update();
  [[nodiscard]] std::optional<at::Tensor> forward_backward(const std::vector<Batch>& batches);
  [[nodiscard]] Update measure(const std::vector<Batch>& batches, const at::Tensor& nll) const;
  [[nodiscard]] bool is_to_be_applied(const Update& update);
  void measure_statistics(Update& update);
  void count(const Update& update);
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
  void save();
  // Saves where the state is sound; tells how the run can go on.
  std::string save_and_tell();
  ExitStatus stop(ExitStatus status);
  ExitStatus end();

  TrainingRun& run_;
  Events& events_;
  const Config& config_;
  TrainingState& state_;
  BatchLoader loader_;
  GraphedPass recorded_;
  GradientStatistics statistics_;
  Saver saver_;
  Meter meter_;
  log::ProgressBar bar_;
  std::int64_t saved_step_;      // the state of which is on disk, as it is
  std::int64_t applied_step_;    // of the last update that changed the weights
  bool is_amid_change_ = false;  // of weights or state: neither that before an update nor after
  bool validation_due_ = false;
  bool save_due_ = false;
};

}  // namespace transnormer
