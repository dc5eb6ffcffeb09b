// The settings of Lion.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "config/config.h"
#include "config/fields.h"

namespace transnormer {

class Optimizer;
struct NamedTensor;

struct LionConfig {
  static constexpr const char* kName = "lion";
  static constexpr const char* kHelp =
      "Lion: the sign of an interpolated momentum, half of AdamW's state; wants an lr 3 to 10 "
      "times "
      "lower than AdamW's and a weight_decay as much higher (Chen et al. 2023)";
  static constexpr std::int64_t kStateSlots = 1;

  std::array<double, 2> betas{0.9, 0.99};

  void visit(FieldVisitor& visitor);
  [[nodiscard]] std::unique_ptr<Optimizer> make(const std::vector<NamedTensor>& tensors,
                                                const OptimizerConfig& config) const;
  bool operator==(const LionConfig&) const = default;
};

}  // namespace transnormer
