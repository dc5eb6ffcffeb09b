#include "optim/adamw.h"

namespace transnormer {

void AdamWConfig::visit(FieldVisitor& visitor) {
  visitor.number_pair(
      {"betas", "Decay of the running means of gradient and square", OnResume::warn}, betas,
      kProbability);
  visitor.number(
      {"eps", "Added to the root of the second moment, after bias correction", OnResume::warn}, eps,
      {.min = 0, .max = 1, .min_open = true});
}

namespace {
[[maybe_unused]] const bool kAdded = add_alternative<AdamWConfig>(optimizers());
}  // namespace

}  // namespace transnormer
