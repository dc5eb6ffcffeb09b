// Muon, of momentum m of a hidden matrix W [rows, columns]:
//   m = mu * m + (1 - mu) * g,  u = mu * m + (1 - mu) * g (nesterov) or m
//   W -= lr * wd * W,  W -= lr * 0.2 * sqrt(max(rows, columns)) * NS(u)
// where NS(u) ~ (u u^T)^(-1/2) u comes of a Newton-Schulz iteration in fp32: X = u / |u|, then
// ns_steps times X = a X + (b X X^T + c (X X^T)^2) X, which brings all singular values near 1.
// Jordan et al. 2024 (the iteration and its coefficients), Liu et al. 2025 (the factor of the rate,
// after which an update has the root mean square of AdamW's). All else goes by AdamW.
#include "optim/muon.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <map>
#include <utility>

#include "optim/adamw.h"
#include "optim/registry.h"

namespace transnormer {
namespace {

constexpr double kLinear = 3.4445;
constexpr double kCubic = -4.7750;
constexpr double kQuintic = 2.0315;

// Numbers of the matrices that are orthogonalised together.
constexpr std::int64_t kBatch = 1 << 22;

// u: [matrices, rows, columns] -> the same sizes; u is written over.
at::Tensor orthogonalized(const at::Tensor& u, std::int64_t steps, double eps) {
  const bool is_tall = u.size(1) > u.size(2);
  // By rows, since LibTorch adds up in single precision.
  const at::Tensor norms =
      at::linalg_vector_norm(at::linalg_vector_norm(u, 2, at::IntArrayRef{2}, /*keepdim=*/true), 2,
                             at::IntArrayRef{1}, /*keepdim=*/true);
  u.div_(norms.clamp_min(eps));
  at::Tensor x = is_tall ? u.transpose(1, 2) : u;  // the smaller of both products with itself
  for (std::int64_t i = 0; i < steps; ++i) {
    const at::Tensor gram = at::bmm(x, x.transpose(1, 2));
    const at::Tensor factor = at::baddbmm(gram, gram, gram, kCubic, kQuintic);
    x = at::baddbmm(x, factor, x, kLinear);
  }
  return is_tall ? x.transpose(1, 2) : x;
}

// The ranges by their sizes, few enough of them at a time.
std::vector<std::vector<const FlatRange*>> batches_of(const std::vector<FlatRange>& ranges) {
  std::map<std::vector<std::int64_t>, std::vector<const FlatRange*>> by_sizes;
  std::vector<std::vector<const FlatRange*>> batches;
  for (const FlatRange& range : ranges) {
    std::vector<const FlatRange*>& alike = by_sizes[range.sizes];
    if (!alike.empty() && (std::ssize(alike) + 1) * range.count > kBatch) {
      batches.push_back(std::exchange(alike, {}));
    }
    alike.push_back(&range);
  }
  for (auto& [sizes, alike] : by_sizes) {
    batches.push_back(std::move(alike));
  }
  return batches;
}

class Muon final : public Optimizer {
 public:
  Muon(const std::vector<NamedTensor>& tensors, const MuonConfig& settings)
      : Optimizer(tensors, adamw_slots(), {{"momentum_buffer"}}), settings_(settings) {}

 private:
  void apply(const OptimizerUpdate& update) override {
    if (!update.of_matrices) {
      apply_adamw(update, {.betas = settings_.betas, .eps = settings_.eps});
      return;
    }
    update.state[0].lerp_(update.gradients, 1 - settings_.momentum);
    if (update.weight_decay != 0) {
      update.values.mul_(1 - update.lr * update.weight_decay);
    }
    for (const std::vector<const FlatRange*>& batch : batches_of(update.ranges)) {
      add_directions(batch, update);
    }
  }

  // Of matrices of the same sizes, whose momenta are made.
  void add_directions(const std::vector<const FlatRange*>& batch,
                      const OptimizerUpdate& update) const {
    const std::int64_t rows = batch.front()->sizes[0];
    const std::int64_t columns = batch.front()->sizes[1];
    const at::Tensor directions =
        at::empty({std::ssize(batch), rows, columns}, update.values.options());
    for (std::size_t i = 0; i < batch.size(); ++i) {
      at::Tensor direction = directions[static_cast<std::int64_t>(i)];
      const at::Tensor momentum = batch[i]->view_of(update.state[0]);
      if (settings_.nesterov) {
        at::lerp_out(direction, batch[i]->view_of(update.gradients), momentum, settings_.momentum);
      } else {
        direction.copy_(momentum);
      }
    }
    const at::Tensor changes = orthogonalized(directions, settings_.ns_steps, settings_.ns_eps);
    const double lr = update.lr * 0.2 * std::sqrt(static_cast<double>(std::max(rows, columns)));
    for (std::size_t i = 0; i < batch.size(); ++i) {
      batch[i]->view_of(update.values).sub_(changes[static_cast<std::int64_t>(i)], lr);
    }
  }

  MuonConfig settings_;
};

}  // namespace

void MuonConfig::visit(FieldVisitor& visitor) {
  visitor.number({"momentum", "Decay of the running mean of a matrix's gradient", OnResume::warn},
                 momentum, kProbability);
  visitor.flag({"nesterov", "Mixes the gradient into that mean once more", OnResume::warn},
               nesterov);
  visitor.integer({"ns_steps", "Newton-Schulz iterations of a matrix's update", OnResume::warn},
                  ns_steps, {1, 99});
  visitor.number({"ns_eps", "Least norm that a matrix's update is divided by", OnResume::warn},
                 ns_eps, {.min = 0, .max = 1, .min_open = true});
  visitor.number_pair({"betas",
                       "Of AdamW, for all else: decay of the running means of gradient and "
                       "square",
                       OnResume::warn},
                      betas, kProbability);
  visitor.number({"eps", "Of AdamW: added to the root of the second moment, after bias correction",
                  OnResume::warn},
                 eps, {.min = 0, .max = 1, .min_open = true});
}

std::unique_ptr<Optimizer> MuonConfig::make(const std::vector<NamedTensor>& tensors,
                                            const OptimizerConfig&) const {
  return std::make_unique<Muon>(tensors, *this);
}

namespace {
[[maybe_unused]] const bool kAdded = add_optimizer<MuonConfig>();
}  // namespace

}  // namespace transnormer
