// How an autograd function carries from forward to backward what is no tensor; tensors go by
// save_for_backward.
#pragma once

#include <ATen/core/ivalue.h>
#include <torch/csrc/autograd/custom_function.h>

#include <utility>

namespace transnormer::ops {

template <typename T>
struct Carried : torch::CustomClassHolder {
  explicit Carried(T given) : value(std::move(given)) {}
  T value;
};

// In forward, once: a function has one value, of one type. Returns it where it is kept, as long as
// the context lives.
template <typename T>
const T& carry(torch::autograd::AutogradContext* context, T value) {
  const auto holder = c10::make_intrusive<Carried<T>>(std::move(value));
  context->saved_data["carried"] = c10::IValue::make_capsule(holder);
  return holder->value;
}

// In backward: what forward carried, which must have been a T.
template <typename T>
[[nodiscard]] const T& carried(torch::autograd::AutogradContext* context) {
  return c10::static_intrusive_pointer_cast<Carried<T>>(context->saved_data["carried"].toCapsule())
      ->value;
}

}  // namespace transnormer::ops
