// The entries of the table of kernels, by name; not those of decoding, which a GPU does not have.
#pragma once

#include <cstddef>

#include "ops/kernels/kernels.h"

namespace transnormer::ops {

// Calls body(name, pointer to the member) for every kernel.
template <typename Body>
void for_each_kernel(const Body& body) {
  using kernels::Kernels;
  body("gated", &Kernels::gated);
  body("gated_backward", &Kernels::gated_backward);
  body("feature", &Kernels::feature);
  body("feature_backward", &Kernels::feature_backward);
  body("srms_norm", &Kernels::srms_norm);
  body("srms_norm_backward", &Kernels::srms_norm_backward);
  body("residual", &Kernels::residual);
  body("residual_backward", &Kernels::residual_backward);
  body("add_column_sums", &Kernels::add_column_sums);
  body("accumulate", &Kernels::accumulate);
  body("dropout", &Kernels::dropout);
  body("dropout_mask", &Kernels::dropout_mask);
  body("lrpe", &Kernels::lrpe);
  body("lrpe_backward", &Kernels::lrpe_backward);
  body("linear_attention", &Kernels::linear_attention);
  body("linear_attention_backward", &Kernels::linear_attention_backward);
  body("block_attention", &Kernels::block_attention);
  body("block_attention_backward", &Kernels::block_attention_backward);
  body("cross_entropy", &Kernels::cross_entropy);
}

inline constexpr std::size_t kKernelCount = 19;
static_assert(sizeof(kernels::Kernels) == (2 + kKernelCount) * sizeof(void*),
              "a new kernel belongs into for_each_kernel, and into ops/trust/trials.cpp");

}  // namespace transnormer::ops
