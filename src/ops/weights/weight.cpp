#include "ops/weights/weight.h"

#include <ATen/ATen.h>

#include <utility>

#include "ops/runtime/row_pitch.h"
#include "ops/weights/compute_type.h"

namespace transnormer::ops {

Weight::Weight(const at::Tensor& value) : Weight(value, {}) {}

Weight::Weight(const at::Tensor& joint, std::vector<at::Tensor> parts) {
  if (joint.defined()) {
    state_ = c10::make_intrusive<State>();
    state_->value = joint;
    state_->parts = std::move(parts);
  }
}

at::Tensor Weight::operand(at::ScalarType compute) const {
  State& state = *state_;
  if (state.value.scalar_type() == compute) {
    return state.value.detach();
  }
  const auto version = static_cast<std::int64_t>(state.value._version());
  if (state.copy_type != compute) {
    state.copy = at::Tensor();
  }
  if (!state.copy.defined() || state.version != version) {
    const at::NoGradGuard no_gradients;
    if (state.copy.defined() && state.copy.scalar_type() == compute) {
      state.copy.copy_(state.value);  // in its place: two copies of a large table are too many
    } else {
      const at::Tensor copy = product_operand(state.value, compute);
      state.copy = copy.dim() == 2 && row_pitch(copy.size(1), copy.options()) != copy.size(1)
                       ? empty_rows(copy.sizes(), copy.options()).copy_(copy)
                       : copy;
    }
    state.copy_type = compute;
    state.version = version;
  }
  return state.copy;
}

const at::Tensor& Weight::anchor() const {
  return state_->parts.empty() ? state_->value : state_->parts.front();
}

bool Weight::gathers_gradient() const {
  return anchor().requires_grad() && anchor().is_leaf();
}

at::Tensor Weight::gradient() const {
  const at::Tensor& value = state_->value;
  if (state_->parts.empty()) {
    at::Tensor& own = value.mutable_grad();
    if (!own.defined()) {
      own = at::zeros_like(value);
    }
    return own;
  }
  if (!state_->parts.front().grad().defined()) {
    const at::Tensor joint = at::zeros_like(value);
    std::int64_t first = 0;
    for (const at::Tensor& part : state_->parts) {
      TORCH_CHECK(!part.grad().defined(), "Weight: some of its parts have a gradient, not all");
      part.mutable_grad() = joint.narrow(0, first, part.size(0));
      first += part.size(0);
    }
    return joint;
  }
  const at::Tensor& first = state_->parts.front().grad();
  std::int64_t place = first.storage_offset();
  for (const at::Tensor& part : state_->parts) {
    const at::Tensor& gradient = part.grad();
    TORCH_CHECK(gradient.defined() && gradient.is_alias_of(first) && gradient.is_contiguous() &&
                    gradient.storage_offset() == place,
                "Weight: the gradients of its parts do not lie one behind the other");
    place += gradient.numel();
  }
  return first.as_strided(value.sizes(), value.strides());
}

}  // namespace transnormer::ops
