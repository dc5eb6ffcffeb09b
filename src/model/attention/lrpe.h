// The learned angles and the frozen reflection of one attention's LRPE, shared by its heads.
#pragma once

#include <torch/nn/module.h>

#include <cstdint>
#include <string>

#include "model/initializer.h"
#include "ops/attention/encoding.h"

namespace transnormer {

// `theta` [head_dim / 2], learned, from 10000^(-2i / head_dim); `reflect` [head_dim], a random unit
// vector that stays, a buffer.
class Lrpe : public torch::nn::Module, public Initializable {
 public:
  Lrpe(std::int64_t head_dim, at::Device device);

  // For queries and keys, from the given position on; period: see ops::lrpe.
  [[nodiscard]] ops::Encoding encoding(std::int64_t first_position, std::int64_t period) const;
  void initialize(const Initializer& initializer, const std::string& prefix) override;

 private:
  at::Tensor theta_;
  at::Tensor reflect_;
};

}  // namespace transnormer
