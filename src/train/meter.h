// Times and counts between two train events.
#pragma once

#include <chrono>
#include <cstdint>

namespace transnormer {

class Meter {
 public:
  // `earlier_s`: what former sessions of the run took.
  explicit Meter(double earlier_s);

  // Bracket the updates, so that validation and saving do not count as training. `ranks_waited_s`:
  // a sum over the session.
  void begin_update(double ranks_waited_s);
  void end_update(std::int64_t tokens, double ranks_waited_s);

  [[nodiscard]] double elapsed_s() const;  // of all sessions
  [[nodiscard]] double tokens_per_s() const;
  // Of the updates' time, what went by waiting for other ranks.
  [[nodiscard]] double ranks_wait_share() const;
  // At this session's pace so far, everything counted; 0 before its first update.
  [[nodiscard]] double seconds_for(std::int64_t updates) const;
  // Starts counting anew. Returns the seconds of `waited_s`, a sum over the session, since then.
  double restart(double waited_s);

 private:
  using Clock = std::chrono::steady_clock;

  double earlier_s_;
  Clock::time_point began_ = Clock::now();
  Clock::time_point update_began_ = began_;
  double update_s_ = 0;
  double ranks_waited_before_s_ = 0;  // when the update began
  std::int64_t tokens_ = 0;
  std::int64_t updates_ = 0;
  double waited_s_ = 0;
  double ranks_waited_s_ = 0;  // of updates, since counting began anew
};

}  // namespace transnormer
