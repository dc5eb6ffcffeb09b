// The kernels of decoding of one instruction set; what they do is said at ops/kernels/step.h.
#pragma once

#include "ops/kernels/step.h"

namespace transnormer::ops::kernels::TRANSNORMER_ISA {

void product(const FewRows&, In x, In weight, In bias, Out y);
void cached_attention(const CachedAttention&, In q, In keys, In values, Out y);
void linear_attention_step(const LinearAttention&, In q, In k, In v, Out out, float* state);

}  // namespace transnormer::ops::kernels::TRANSNORMER_ISA
