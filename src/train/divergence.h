// That training diverged, and how that shows without a number that is not finite: the loss stays
// far above that of guessing.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "checkpoint/training_state.h"
#include "util/error.h"

namespace transnormer {

// A divergence, with what going on after it needs to know.
class Divergence : public DivergedError {
 public:
  struct Facts {
    std::string summary;           // what happened and where, for people
    std::int64_t sound_until = 0;  // no state of a later step is worth going back to
    std::int64_t updates = 0;      // begun so far: the samples of all of them were seen
  };
  Divergence(Facts facts, const std::string& advice)
      : DivergedError(facts.summary + "; " + advice), facts_(std::move(facts)) {}

  [[nodiscard]] const Facts& facts() const { return facts_; }

 private:
  Facts facts_;
};

inline constexpr std::int64_t kLossWindow = 50;  // updates

// A window of updates whose mean loss is that of a training which diverged.
struct LossRise {
  double before = 0;  // mean loss, nats a token, of the window before
  double now = 0;     // of this one
};

// Notes the loss of the update that made `state.step`, nats a token. At the end of each window of
// kLossWindow updates: a rise where their mean is above 3 times the loss of guessing and above
// 0.8 times the mean of the window before; a run that starts far above guessing falls faster than
// that. An update counts whether it was
// applied or skipped, but not where its loss is not finite: those have a limit of their own. The
// state's low_loss_step is the end of the last window below that height.
[[nodiscard]] std::optional<LossRise> judge_loss(double loss, double guessing,
                                                 TrainingState& state);

// Whether the updates since the last whole window, or those in it, are above that height: then the
// newest checkpoints may be of a training that is about to diverge.
[[nodiscard]] bool is_loss_high(double guessing, const TrainingState& state);

// Begins at the present step: what was before says nothing about what comes.
void restart_loss_windows(TrainingState& state);

// False in a state that no window was noted in, as in those of earlier versions.
[[nodiscard]] bool has_loss_windows(const TrainingState& state);

}  // namespace transnormer
