// A normalisation of the last dimension with the parameters its kind has.
#pragma once

#include <torch/nn/module.h>

#include <cstdint>
#include <string>

#include "config/config.h"
#include "model/initializer.h"
#include "ops/residual.h"

namespace transnormer {

// srms: no parameters; rms: `weight`; layer: `weight`, `bias` (gain 1, bias 0); none: the identity.
class Norm : public torch::nn::Module, public Initializable {
 public:
  Norm(NormKind kind, std::int64_t dim, double eps, at::Device device);

  // x: [.., dim] of any type -> the same shape in the type `result`; computed in fp32.
  [[nodiscard]] at::Tensor forward(const at::Tensor& x, at::ScalarType result) const;
  // The stream x + dropout(y), or x itself where y is undefined, and its norm in the type `result`.
  [[nodiscard]] ops::StreamAndNorm forward(const at::Tensor& x, const at::Tensor& y,
                                           const ops::Drop& drop, at::ScalarType result) const;
  void initialize(const Initializer& initializer, const std::string& prefix) override;

 private:
  NormKind kind_;
  double eps_;
  at::Tensor weight_;
  at::Tensor bias_;
};

}  // namespace transnormer
