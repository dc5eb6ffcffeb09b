// What the attentions' operators share on their way to a kernel.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "ops/attention/encoding.h"
#include "ops/attention/lrpe_table.h"
#include "ops/kernels/kernels.h"

namespace transnormer::ops {

// q, k, v ([batch, time, heads, dim]) as a kernel reads them: of q's type, dense in their last two
// dimensions, rows equal strides apart. Copies only those that are not.
struct AttentionOperands {
  AttentionOperands(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v);
  [[nodiscard]] kernels::RowStrides strides() const;

  at::Tensor q;
  at::Tensor k;
  at::Tensor v;
};

// New tensors for the gradients: the parts of one where q, k, v are (see ops/attention/joint.h).
[[nodiscard]] AttentionOperands unfilled_gradients(const AttentionOperands& x);

// The names that kernels have for an encoding's feature map, and its table of rotations (empty
// without LRPE), which queries and keys, forward and backward share.
[[nodiscard]] kernels::Feature feature_of(const Encoding& encoding);
[[nodiscard]] LrpeTable table_of(const Encoding& encoding, std::int64_t time);

// Whether a kernel's table has room for what the encoding does to heads of q's width.
[[nodiscard]] bool encoding_fits(const at::Tensor& q, const Encoding& encoding);

// The learned angles as autograd's functions take an operand that may be missing.
[[nodiscard]] std::optional<at::Tensor> theta_of(const Encoding& encoding);

// Shares of d(theta) in double, one for each head of each batch row: so cut, their sum does not
// depend on the number of threads.
class ThetaGradient {
 public:
  ThetaGradient(const at::Tensor& q, bool wanted);
  [[nodiscard]] double* data() const;
  // In fp32, as theta is; undefined where not wanted.
  [[nodiscard]] at::Tensor sum() const;

 private:
  at::Tensor shares_;
};

}  // namespace transnormer::ops
