// Forward and backward over one micro-batch: what training repeats, and what `bench` times.
#pragma once

#include <ATen/core/Tensor.h>

#include "model/context.h"
#include "model/transnormer.h"

namespace transnormer {

// inputs, targets: [batch, time], int64; a target of -1 is ignored. Adds the gradients of scale
// times the summed loss to the parameters'; returns the summed loss itself in nats, an fp64 scalar
// on the device, without waiting for it. Throws ops::PassStopped where the context says so; the
// gradients are then a part only.
[[nodiscard]] at::Tensor training_pass(TransNormer& model, const at::Tensor& inputs,
                                       const at::Tensor& targets, const ForwardContext& context,
                                       double scale);

}  // namespace transnormer
