// What the attentions' operators share on their way to a kernel.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
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

// New tensors for the gradients: the parts of one where q, k, v are (see ops/joint.h).
[[nodiscard]] AttentionOperands unfilled_gradients(const AttentionOperands& x);

// An encoding made ready for kernels: LRPE's table, which queries and keys, forward and backward
// pass share.
class KernelEncoding {
 public:
  KernelEncoding(const Encoding& encoding, std::int64_t time);
  [[nodiscard]] kernels::Encoding view() const;
  [[nodiscard]] bool has_lrpe() const { return table_ != nullptr; }

 private:
  kernels::Feature feature_ = kernels::Feature::none;
  std::shared_ptr<const LrpeTable> table_;
  at::Tensor unit_;
};

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
