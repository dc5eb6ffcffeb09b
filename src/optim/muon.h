// The settings of Muon.
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

struct MuonConfig {
  static constexpr const char* kName = "muon";
  static constexpr const char* kHelp =
      "Muon: hidden matrices by their orthogonalised momentum, scaled so that AdamW's lr and "
      "weight_decay fit (Jordan et al. 2024; Liu et al. 2025), all else by AdamW";
  static constexpr std::int64_t kStateSlots = 2;
  static constexpr std::int64_t kMatrixSlots = 1;

  double momentum = 0.95;
  bool nesterov = true;
  std::int64_t ns_steps = 5;
  double ns_eps = 1e-7;
  // Of AdamW.
  std::array<double, 2> betas{0.9, 0.98};
  double eps = 1e-8;

  void visit(FieldVisitor& visitor);
  [[nodiscard]] std::unique_ptr<Optimizer> make(const std::vector<NamedTensor>& tensors,
                                                const OptimizerConfig& config) const;
  bool operator==(const MuonConfig&) const = default;
};

}  // namespace transnormer
