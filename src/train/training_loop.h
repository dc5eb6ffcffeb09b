// The loop over the updates of a run that is set up.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "data/batches.h"
#include "log/progress.h"
#include "model/recorded_pass.h"
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

  // Goes on to the end of training or until a signal asks to stop, then saves. Throws
  // DivergedError; nothing is saved then.
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

  // One update and its events. False where a signal stopped it half-way; the state is then that of
  // before.
  bool make_update();
  [[nodiscard]] std::optional<at::Tensor> forward_backward(const std::vector<Batch>& batches);
  [[nodiscard]] Update measure(const std::vector<Batch>& batches, const at::Tensor& nll) const;
  [[nodiscard]] bool is_to_be_applied(const Update& update);
  void measure_statistics(Update& update);
  void count(const Update& update);
  void report(Update update);

  // Validation, end and checkpoint, as far as the present step asks for them. Also makes up for a
  // validation that was cut short before a resume. False where a signal cut it short now.
  bool finish_step();
  bool validate();
  void save();
  ExitStatus stop(ExitStatus status);
  ExitStatus end();

  TrainingRun& run_;
  Events& events_;
  const Config& config_;
  TrainingState& state_;
  BatchLoader loader_;
  RecordedPass recorded_;
  GradientStatistics statistics_;
  Saver saver_;
  Meter meter_;
  log::ProgressBar bar_;
  std::int64_t saved_step_;  // the state of which is on disk, as it is
};

}  // namespace transnormer
