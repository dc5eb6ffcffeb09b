#include "train/meter.h"

namespace transnormer {
namespace {

using Seconds = std::chrono::duration<double>;

}  // namespace

Meter::Meter(double earlier_s) : earlier_s_(earlier_s) {}

void Meter::begin_update(double ranks_waited_s) {
  ranks_waited_before_s_ = ranks_waited_s;
  update_began_ = Clock::now();
}

void Meter::end_update(std::int64_t tokens, double ranks_waited_s) {
  ranks_waited_s_ += ranks_waited_s - ranks_waited_before_s_;
  update_s_ += Seconds(Clock::now() - update_began_).count();
  tokens_ += tokens;
  ++updates_;
}

double Meter::elapsed_s() const {
  return earlier_s_ + Seconds(Clock::now() - began_).count();
}

double Meter::tokens_per_s() const {
  return update_s_ > 0 ? static_cast<double>(tokens_) / update_s_ : 0;
}

double Meter::ranks_wait_share() const {
  return update_s_ > 0 ? ranks_waited_s_ / update_s_ : 0;
}

double Meter::seconds_for(std::int64_t updates) const {
  if (updates_ == 0) {
    return 0;
  }
  const double spent = Seconds(Clock::now() - began_).count();
  return spent / static_cast<double>(updates_) * static_cast<double>(updates);
}

double Meter::restart(double waited_s) {
  update_s_ = 0;
  ranks_waited_s_ = 0;
  tokens_ = 0;
  const double since = waited_s - waited_s_;
  waited_s_ = waited_s;
  return since;
}

}  // namespace transnormer
