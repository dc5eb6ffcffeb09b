// A normalisation of the last dimension with the parameters its kind has.
#pragma once

#include <torch/nn/module.h>

#include <cstdint>
#include <string>

#include "config/config.h"
#include "model/initializer.h"

namespace transnormer {

// srms: no parameters; rms: `weight`; layer: `weight`, `bias` (gain 1, bias 0); none: the identity.
class Norm : public torch::nn::Module, public Initializable {
 public:
  Norm(NormKind kind, std::int64_t dim, double eps, at::Device device);

  // x: [.., dim] of any type -> the same shape in the type `result`; computed in fp32.
  [[nodiscard]] at::Tensor forward(const at::Tensor& x, at::ScalarType result) const;
  void initialize(const Initializer& initializer, const std::string& prefix) override;

 private:
  NormKind kind_;
  double eps_;
  at::Tensor weight_;
  at::Tensor bias_;
};

}  // namespace transnormer
