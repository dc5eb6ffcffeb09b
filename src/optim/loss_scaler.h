// Dynamic loss scale for half precision: the loss is multiplied so that small gradients survive in
// fp16, the gradients are divided again. Micikevicius et al. 2018.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace transnormer {

class LossScaler {
 public:
  static constexpr double kInitialScale = 65536;
  static constexpr std::int64_t kGrowthInterval = 2000;
  static constexpr double kMaximum = 4294967296.0;  // far above any use; keeps the scale finite

  // Switched off, the scale is 1 and nothing below has an effect.
  explicit LossScaler(bool enabled) : enabled_(enabled), scale_(enabled ? kInitialScale : 1) {}

  [[nodiscard]] bool enabled() const { return enabled_; }
  [[nodiscard]] double scale() const { return scale_; }
  [[nodiscard]] std::int64_t growth_count() const { return growth_count_; }
  void restore(double scale, std::int64_t growth_count);

  // Divides the gradients by the scale. Elements that are not finite stay so.
  void unscale(const std::vector<at::Tensor>& gradients) const;

  // After an update whose gradients were finite, or not: halves the scale on overflow, to no less
  // than 1, and doubles it after 2,000 updates in a row without one. Returns whether the scale
  // could still be lowered, so that the overflow is the scale's fault and not the model's.
  bool update(bool overflow);

 private:
  bool enabled_;
  double scale_;
  std::int64_t growth_count_ = 0;  // updates in a row without overflow
};

}  // namespace transnormer
