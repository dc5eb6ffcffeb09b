// The kernels of one instruction set; what they do is said at their table, ops/kernels/kernels.h.
#pragma once

#include "ops/kernels/kernels.h"

namespace transnormer::ops::kernels::TRANSNORMER_ISA {

void gated(Gate, In gate_up, Out out, const GatedRows&);
void gated_backward(Gate, In gate_up, In d_out, Out d_gate_up, const GatedRows&);
void feature(Feature, In x, Out y, std::int64_t count);
void feature_backward(Feature, In x, In d_y, Out d_x, std::int64_t count);
void srms_norm(In x, Out y, std::int64_t rows, std::int64_t dim, float eps);
void srms_norm_backward(In x, In d_y, Out d_x, std::int64_t rows, std::int64_t dim, float eps);
void residual(const Residual&, In x, In y, Out sum, Out normed);
void residual_backward(const Residual&, In sum, In d_sum, In d_normed, Out d_x, Out d_y);
void add_column_sums(In x, float* sums, std::int64_t rows, std::int64_t columns, std::int64_t first,
                     std::int64_t last);
void accumulate(In x, float* sum, std::int64_t count);
void dropout(const Mask&, In x, Out y, std::int64_t elements, std::int64_t first,
             std::int64_t last);
void dropout_mask(const Mask&, float* mask, std::int64_t count);
void lrpe(const LrpeRows&, In x, Out y);
void lrpe_backward(const LrpeRows&, In x, In d_y, Out d_x, double* d_theta);
void linear_attention(const LinearAttention&, In q, In k, In v, Out out, float* state);
void linear_attention_backward(const LinearAttention&, In q, In k, In v, In d_out, Out d_q, Out d_k,
                               Out d_v, double* d_theta, const OuterSums&);
void block_attention(const BlockAttention&, In q, In k, In v, Out out);
void block_attention_backward(const BlockAttention&, In q, In k, In v, In d_out, Out d_q, Out d_k,
                              Out d_v, double* d_theta);
void cross_entropy(Out logits, const std::int64_t* targets, float* losses, std::int64_t rows,
                   std::int64_t vocab_size, std::int64_t stride, const float* scale);

}  // namespace transnormer::ops::kernels::TRANSNORMER_ISA
