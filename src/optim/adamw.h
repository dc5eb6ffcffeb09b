// The settings of AdamW, and its rule for optimizers that leave some parameters to it.
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
struct OptimizerUpdate;
struct StateSlot;

struct AdamWConfig {
  static constexpr const char* kName = "adamw";
  static constexpr const char* kHelp = "AdamW: decoupled weight decay (Loshchilov and Hutter 2019)";
  static constexpr std::int64_t kStateSlots = 2;

  std::array<double, 2> betas{0.9, 0.98};
  double eps = 1e-8;

  void visit(FieldVisitor& visitor);
  [[nodiscard]] std::unique_ptr<Optimizer> make(const std::vector<NamedTensor>& tensors,
                                                const OptimizerConfig& config) const;
  bool operator==(const AdamWConfig&) const = default;
};

// What it keeps of a parameter, and its update of such.
[[nodiscard]] std::vector<StateSlot> adamw_slots();
void apply_adamw(const OptimizerUpdate& update, const AdamWConfig& settings);

}  // namespace transnormer
