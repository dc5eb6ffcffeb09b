// The output layer and its loss together, in slices of tokens: the whole [tokens, vocab_size]
// logits are never there. Gradients are formed in the forward pass.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "ops/runtime/stop_check.h"
#include "ops/weights/weight.h"

namespace transnormer::ops {

// logits = hidden weight^T + bias. weight: [vocab_size, dim]; bias: [vocab_size] or undefined;
// fp32.
struct OutputLayer {
  OutputLayer(const Weight& of_words, const Weight& of_biases = {})  // NOLINT: implicit
      : weight(of_words), bias(of_biases) {}
  OutputLayer(const at::Tensor& of_words) : weight(of_words) {}  // NOLINT: implicit
  Weight weight;
  Weight bias;
};

struct LinearCrossEntropyOptions {
  at::ScalarType compute = at::kFloat;  // type of the products
  // Multiplies the summed loss and its gradients: an fp32 scalar on the device of `hidden`, read
  // there and not by the host; undefined: 1.
  at::Tensor scale = {};
  // For a slice of logits, at most; 0: what suits the device.
  std::int64_t memory_bytes = 0;
  const ShouldStop* should_stop = nullptr;  // asked before each slice
};

struct CrossEntropy {
  at::Tensor loss;  // scalar, fp32: scale * sum of -log p(target); differentiable
  at::Tensor nll;   // sum of -log p(target), unscaled, fp64 scalar, no gradient
};

// hidden: [tokens, dim]; targets: [tokens], int64, -1 = ignored. d(weight) is added to the weight's
// gradient here, in the forward pass, where the weight gathers it (see ops::Weight), and backward()
// adds nothing to it: a second buffer of its size is never needed; so is d(bias). The loss must
// then be differentiated once, with a gradient of 1; `scale` is the way to weigh it. Throws
// c10::Error for a target that is no word.
[[nodiscard]] CrossEntropy linear_cross_entropy(const at::Tensor& hidden, const OutputLayer& output,
                                                const at::Tensor& targets,
                                                const LinearCrossEntropyOptions& options);

// -log p(target) of each token, fp32 [tokens], 0 where ignored; no gradients, same slices.
[[nodiscard]] at::Tensor token_losses(const at::Tensor& hidden, const OutputLayer& output,
                                      const at::Tensor& targets,
                                      const LinearCrossEntropyOptions& options);

}  // namespace transnormer::ops
