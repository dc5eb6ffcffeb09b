// Lion, of momentum m: p -= lr * (sign(beta1 * m + (1 - beta1) * g) + wd * p), then
// m = beta2 * m + (1 - beta2) * g. Chen et al. 2023.
#include "optim/lion.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include "optim/registry.h"

namespace transnormer {
namespace {

struct Factors {
  float mixed;    // 1 - beta1: the gradient's share of what the sign is of
  float kept;     // 1 - beta2: .. of the momentum
  float shrunk;   // what the decay leaves of a weight
  float changed;  // the learning rate
};

// All in one pass over the memory. Written so that it becomes vectors: a choice of numbers would
// not.
void apply_on_cpu(const Factors by, std::int64_t count, float* __restrict values,
                  const float* __restrict gradients, float* __restrict momenta) {
  for (std::int64_t i = 0; i < count; ++i) {
    const float difference = gradients[i] - momenta[i];
    const float mixed = momenta[i] + by.mixed * difference;
    const auto sign = static_cast<float>(static_cast<int>(mixed > 0) - static_cast<int>(mixed < 0));
    values[i] = values[i] * by.shrunk - by.changed * sign;
    momenta[i] += by.kept * difference;
  }
}

class Lion final : public Optimizer {
 public:
  Lion(const std::vector<NamedTensor>& tensors, const LionConfig& settings)
      : Optimizer(tensors, {{"exp_avg"}}), settings_(settings) {}

 private:
  void apply(const OptimizerUpdate& update) override {
    const auto [beta1, beta2] = settings_.betas;
    const at::Tensor& momentum = update.state[0];
    const double shrunk = 1 - update.lr * update.weight_decay;
    if (update.values.is_cpu()) {
      const Factors by{static_cast<float>(1 - beta1), static_cast<float>(1 - beta2),
                       static_cast<float>(shrunk), static_cast<float>(update.lr)};
      constexpr std::int64_t kGrain = 32768;  // elements that are worth a thread
      at::parallel_for(0, update.values.numel(), kGrain, [&](std::int64_t begin, std::int64_t end) {
        apply_on_cpu(by, end - begin, update.values.mutable_data_ptr<float>() + begin,
                     update.gradients.const_data_ptr<float>() + begin,
                     momentum.mutable_data_ptr<float>() + begin);
      });
      return;
    }
    const at::Tensor sign = at::lerp(momentum, update.gradients, 1 - beta1).sign_();
    update.values.mul_(shrunk).sub_(sign, update.lr);
    momentum.lerp_(update.gradients, 1 - beta2);
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
