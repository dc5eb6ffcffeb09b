#include "optim/loss_scaler.h"

#include <algorithm>

namespace transnormer {

void LossScaler::restore(double scale, std::int64_t growth_count) {
  if (!enabled_) {
    return;
  }
  scale_ = scale;
  growth_count_ = growth_count;
}

void LossScaler::unscale(const std::vector<at::Tensor>& gradients) const {
  if (!enabled_ || gradients.empty()) {
    return;
  }
  const at::NoGradGuard no_grad;
  const auto options = at::TensorOptions().dtype(at::kFloat).device(gradients.front().device());
  at::Tensor found_nonfinite = at::zeros({}, options);  // the norm tells the same later
  const at::Tensor inverse = at::full({}, 1 / scale_, options);
  at::_amp_foreach_non_finite_check_and_unscale_(gradients, found_nonfinite, inverse);
}

bool LossScaler::update(bool overflow) {
  if (!enabled_) {
    return false;
  }
  if (overflow) {
    const bool lowered = scale_ > 1;
    scale_ = std::max(scale_ / 2, 1.0);
    growth_count_ = 0;
    return lowered;
  }
  if (++growth_count_ == kGrowthInterval) {
    scale_ = std::min(scale_ * 2, kMaximum);
    growth_count_ = 0;
  }
  return false;
}

}  // namespace transnormer
