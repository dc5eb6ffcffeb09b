// The learned angles and the frozen reflection of one attention's LRPE, shared by its heads.
#pragma once

#include <torch/nn/module.h>

#include <cstdint>
#include <string>

#include "model/context.h"
#include "model/initializer.h"
#include "ops/attention/encoding.h"

namespace transnormer {

// `theta` [head_dim / 2], learned, from 10000^(-2i / head_dim); `reflect` [head_dim], a random unit
// vector that stays, a buffer.
class Lrpe : public torch::nn::Module, public Initializable {
 public:
  // head_dim: of queries and keys; throws UserError where it is odd.
  Lrpe(std::int64_t head_dim, at::Device device);

  // For queries and keys, at the context's positions; period: see ops::lrpe.
  [[nodiscard]] ops::Encoding encoding(const ForwardContext& context, std::int64_t period) const;
  void initialize(const Initializer& initializer, const std::string& prefix) override;

 private:
  at::Tensor theta_;
  at::Tensor reflect_;
};

}  // namespace transnormer
