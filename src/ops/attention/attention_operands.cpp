#include "ops/attention/attention_operands.h"

#include <ATen/ATen.h>

#include <optional>

#include "ops/activation.h"
#include "ops/attention/joint.h"
#include "ops/runtime/kernel_view.h"

namespace transnormer::ops {
namespace {

// The elements from one time's row to the next where a kernel can read the tensor as it is.
std::optional<std::int64_t> row_stride(const at::Tensor& x) {
  const std::int64_t batch = x.size(0);
  const std::int64_t time = x.size(1);
  const std::int64_t heads = x.size(2);
  const std::int64_t dim = x.size(3);
  if ((dim > 1 && x.stride(3) != 1) || (heads > 1 && x.stride(2) != dim)) {
    return std::nullopt;
  }
  if (time == 1 && batch == 1) {
    return heads * dim;
  }
  const std::int64_t stride = time == 1 ? x.stride(0) : x.stride(1);
  const bool even = time == 1 || batch == 1 || x.stride(0) == time * stride;
  return even && stride >= heads * dim ? std::optional(stride) : std::nullopt;
}

at::Tensor readable(const at::Tensor& x, at::ScalarType type) {
  const at::Tensor typed = x.to(type);
  return row_stride(typed) ? typed : typed.contiguous();
}

}  // namespace

AttentionOperands::AttentionOperands(const at::Tensor& query, const at::Tensor& key,
                                     const at::Tensor& value)
    : q(readable(query, query.scalar_type())),
      k(readable(key, query.scalar_type())),
      v(readable(value, query.scalar_type())) {}

kernels::RowStrides AttentionOperands::strides() const {
  return {*row_stride(q), *row_stride(k), *row_stride(v)};
}

AttentionOperands unfilled_gradients(const AttentionOperands& x) {
  const std::vector<at::Tensor> made = empty_like_parts({x.q, x.k, x.v});
  return {made[0], made[1], made[2]};
}

kernels::Feature feature_of(const Encoding& encoding) {
  return encoding.feature ? feature_of(*encoding.feature) : kernels::Feature::none;
}

LrpeTable table_of(const Encoding& encoding, std::int64_t time) {
  if (!encoding.theta.defined()) {
    return {};
  }
  return {encoding.theta, encoding.reflect, time,
          Positions{encoding.first_position, encoding.period, {}}};
}

bool encoding_fits(const at::Tensor& q, const Encoding& encoding) {
  return !encoding.theta.defined() ||
         (!encoding.positions.defined() && q.size(3) <= kernels::kWidestLrpe);
}

std::optional<at::Tensor> theta_of(const Encoding& encoding) {
  return encoding.theta.defined() ? std::optional(encoding.theta) : std::nullopt;
}

ThetaGradient::ThetaGradient(const at::Tensor& q, bool wanted) {
  if (wanted) {
    shares_ = at::zeros({q.size(0) * q.size(2), q.size(3) / 2}, q.options().dtype(at::kDouble));
  }
}

double* ThetaGradient::data() const {
  return shares_.defined() ? shares_.mutable_data_ptr<double>() : nullptr;
}

at::Tensor ThetaGradient::sum() const {
  return shares_.defined() ? shares_.sum(0).to(at::kFloat) : at::Tensor();
}

}  // namespace transnormer::ops
