// Every operator with the same in plain operations of LibTorch, for comparison in double precision
// on any device.
#pragma once

#include <ATen/ATen.h>

#include <functional>
#include <string>
#include <vector>

namespace transnormer::ops {

using Tensors = std::vector<at::Tensor>;

struct OperatorCase {
  std::string name;
  Tensors activations;  // fp32 here; come in the type of the products
  Tensors parameters;   // stay fp32
  // The operator under test: (activations, parameters, type of the products) -> result.
  std::function<at::Tensor(const Tensors&, const Tensors&, at::ScalarType)> apply;
  // The same of operands in double on the CPU.
  std::function<at::Tensor(const Tensors&, const Tensors&)> reference;
};

// Of sizes that no chunk, block or vector divides.
[[nodiscard]] std::vector<OperatorCase> operator_cases();

// Runs the operator on the device in that type, forward and (where it is differentiable) backward;
// the result and all gradients must be those of the reference for the same rounded operands, within
// `tolerance` of their largest value, or of a tenth where all are smaller.
void expect_like_reference(const OperatorCase& tested, at::Device device, at::ScalarType type,
                           double tolerance);

}  // namespace transnormer::ops
