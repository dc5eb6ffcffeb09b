// The attention matrices of a model on a window, one layer after the other.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <vector>

#include "model/transnormer.h"

namespace transnormer {

// Which layers and heads are looked at.
struct Selection {
  std::vector<std::int64_t> layers{};  // ascending
  std::vector<std::int64_t> heads{};   // ascending; empty: all that a layer has

  [[nodiscard]] bool has_layer(std::int64_t layer) const;
  // Of a layer with `count` heads. Throws UserError where it lacks a selected one.
  [[nodiscard]] std::vector<std::int64_t> heads_of(std::int64_t layer, std::int64_t count) const;
};

// p = |s| / sum |s| over the last dimension, fp64; a row of zeros stays one.
[[nodiscard]] at::Tensor shares(const at::Tensor& weights);

// Runs the model on `inputs` [1, time] and calls `each` for every selected layer with what each
// token takes from each, fp32 [heads, time, time] (Attention::weights), all heads. One layer's
// matrices are there at a time.
void for_each_weights(
    TransNormer& model, const at::Tensor& inputs, const Selection& selection,
    const std::function<void(std::int64_t layer, const at::Tensor& weights)>& each);

}  // namespace transnormer
