// Lion, of momentum m: p -= lr * (sign(beta1 * m + (1 - beta1) * g) + wd * p), then
// m = beta2 * m + (1 - beta2) * g. Chen et al. 2023.
#include "optim/lion.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <algorithm>

#include "optim/registry.h"

namespace transnormer {
namespace {

// Elements that are gone through at once on a CPU: what they take of all tensors fits its cache, so
// that each comes from memory once.
constexpr std::int64_t kStretch = 16384;

class Lion final : public Optimizer {
 public:
  Lion(const std::vector<NamedTensor>& tensors, const LionConfig& settings)
      : Optimizer(tensors, {{"exp_avg"}}), settings_(settings) {}

 private:
  void apply(const OptimizerUpdate& update) override {
    const std::int64_t elements = update.values.numel();
    if (!update.values.is_cpu()) {
      apply_to(update, 0, elements, at::empty_like(update.values));
      return;
    }
    at::parallel_for(0, elements, kStretch, [&](std::int64_t begin, std::int64_t end) {
      const at::NoGradGuard no_grad;  // of this thread
      const at::Tensor scratch =
          at::empty({std::min(kStretch, end - begin)}, update.values.options());
      for (std::int64_t at = begin; at < end; at += kStretch) {
        apply_to(update, at, std::min(kStretch, end - at), scratch);
      }
    });
  }

  // scratch: at least `count` elements.
  void apply_to(const OptimizerUpdate& update, std::int64_t begin, std::int64_t count,
                const at::Tensor& scratch) const {
    const at::Tensor values = update.values.narrow(0, begin, count);
    const at::Tensor gradients = update.gradients.narrow(0, begin, count);
    const at::Tensor momentum = update.state[0].narrow(0, begin, count);
    at::Tensor sign = scratch.narrow(0, 0, count);
    at::lerp_out(sign, momentum, gradients, 1 - settings_.betas[0]);
    sign.sign_();
    if (update.weight_decay != 0) {
      values.mul_(1 - update.lr * update.weight_decay);
    }
    values.sub_(sign, update.lr);
    momentum.lerp_(gradients, 1 - settings_.betas[1]);
  }

  LionConfig settings_;
};

}  // namespace

void LionConfig::visit(FieldVisitor& visitor) {
  visitor.number_pair(
      {"betas", "Decay of the momentum: within the update's sign, and of what is kept",
       OnResume::warn},
      betas, kProbability);
}

std::unique_ptr<Optimizer> LionConfig::make(const std::vector<NamedTensor>& tensors,
                                            const OptimizerConfig&) const {
  return std::make_unique<Lion>(tensors, *this);
}

namespace {
[[maybe_unused]] const bool kAdded = add_optimizer<LionConfig>();
}  // namespace

}  // namespace transnormer
