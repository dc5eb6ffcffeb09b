// Floating-point operations of a model, counted from its shapes; a multiplication with its addition
// is two.
#pragma once

#include <cstdint>

#include "model/transnormer.h"

namespace transnormer {

// Of one token, forward. Norms, activations and look-ups are not counted.
struct FlopsPerToken {
  double output = 0;     // the output layer
  double layers = 0;     // projections and feed-forward products
  double attention = 0;  // between the projections
  [[nodiscard]] double forward() const { return output + layers + attention; }
  [[nodiscard]] double train() const { return 3 * forward(); }  // backward is twice the forward
};

// In sequences of `length` tokens. The model may be on at::kMeta.
[[nodiscard]] FlopsPerToken flops_per_token(const TransNormer& model, std::int64_t length);

}  // namespace transnormer
