#include "optim/optimizer.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/variable.h>

#include <utility>

namespace transnormer {
namespace {

// The slot's initial value where parameters lie, zero between them.
void initialize_state(const at::Tensor& state, const FlatBuffer& buffer, double initial) {
  state.zero_();
  if (initial != 0) {
    for (const FlatRange& range : buffer.ranges) {
      range.view_of(state).fill_(initial);
    }
  }
}

}  // namespace

Optimizer::Optimizer(const std::vector<NamedTensor>& tensors, std::vector<StateSlot> slots)
    : flat_(tensors), slots_(std::move(slots)) {
  for (const FlatBuffer& buffer : flat_.buffers()) {
    std::vector<at::Tensor>& state = state_.emplace_back();
    for (const StateSlot& slot : slots_) {
      initialize_state(state.emplace_back(at::empty_like(buffer.values)), buffer, slot.initial);
    }
  }
}

void Optimizer::reset() {
  updates_ = 0;
  for (std::size_t i = 0; i < state_.size(); ++i) {
    for (std::size_t slot = 0; slot < slots_.size(); ++slot) {
      initialize_state(state_[i][slot], flat_.buffers()[i], slots_[slot].initial);
    }
  }
}

void Optimizer::step(double lr) {
  const at::NoGradGuard no_grad;
  ++updates_;
  for (std::size_t i = 0; i < state_.size(); ++i) {
    const FlatBuffer& buffer = flat_.buffers()[i];
    apply({.values = buffer.values,
           .gradients = buffer.gradients,
           .state = state_[i],
           .ranges = buffer.ranges,
           .lr = lr,
           .number = updates_});
  }
  // They share memory with what was changed, but not its version.
  for (const NamedTensor& parameter : parameters()) {
    torch::autograd::impl::bump_version(parameter.tensor);
  }
}

void Optimizer::zero_gradients() {
  for (const FlatBuffer& buffer : flat_.buffers()) {
    buffer.gradients.zero_();
  }
}

std::vector<NamedTensor> Optimizer::named_state() const {
  std::vector<std::vector<at::Tensor>> views;  // of each slot
  for (std::size_t slot = 0; slot < slots_.size(); ++slot) {
    std::vector<at::Tensor> flat;
    for (const std::vector<at::Tensor>& state : state_) {
      flat.push_back(state[slot]);
    }
    views.push_back(flat_.views_of(flat));
  }
  std::vector<NamedTensor> result;
  for (std::size_t i = 0; i < parameters().size(); ++i) {
    for (std::size_t slot = 0; slot < slots_.size(); ++slot) {
      result.push_back({parameters()[i].name + '.' + slots_[slot].name, views[slot][i], false});
    }
  }
  return result;
}

}  // namespace transnormer
