// Normalisations of the last dimension, computed in fp32 whatever the types.
#pragma once

#include <ATen/core/Tensor.h>

namespace transnormer::ops {

// SimpleRMSNorm: x / sqrt(mean(x^2) + eps), no gain. Keeps x and recomputes the rest.
[[nodiscard]] at::Tensor srms_norm(const at::Tensor& x, double eps, at::ScalarType result);

// d(x) = r (g - x r^2 mean(g x)), r = 1 / sqrt(mean(x^2) + eps), in x's type.
[[nodiscard]] at::Tensor srms_norm_backward(const at::Tensor& gradient, const at::Tensor& x,
                                            double eps);

// RMSNorm: gain * x / sqrt(mean(x^2) + eps); gain: [last], fp32.
[[nodiscard]] at::Tensor rms_norm(const at::Tensor& x, const at::Tensor& gain, double eps,
                                  at::ScalarType result);

// The gated norm of ReLA, gain * x / sqrt(mean(x^2) + eps) * sigmoid(gate * x); gain, gate: [last],
// fp32. Keeps x and recomputes the rest.
[[nodiscard]] at::Tensor gated_srms_norm(const at::Tensor& x, const at::Tensor& gain,
                                         const at::Tensor& gate, double eps, at::ScalarType result);

// LayerNorm: gain * (x - mean) / sqrt(var + eps) + bias.
[[nodiscard]] at::Tensor layer_norm(const at::Tensor& x, const at::Tensor& gain,
                                    const at::Tensor& bias, double eps, at::ScalarType result);

}  // namespace transnormer::ops
