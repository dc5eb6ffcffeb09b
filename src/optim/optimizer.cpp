#include "optim/optimizer.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <utility>

namespace transnormer {
namespace {

// The slot's initial value where parameters lie, zero between them.
void initialize_slot(const at::Tensor& state, const std::vector<FlatRange>& ranges,
                     double initial) {
  state.zero_();
  if (initial != 0) {
    for (const FlatRange& range : ranges) {
      state.narrow(0, range.offset, range.count).fill_(initial);
    }
  }
}

// What of the ranges lies in a part, seen from its beginning.
std::vector<FlatRange> ranges_in(const std::vector<FlatRange>& ranges,
                                 const dist::Group::Part& part) {
  std::vector<FlatRange> inside;
  for (const FlatRange& range : ranges) {
    const dist::Group::Part common = part.common_with({range.offset, range.offset + range.count});
    if (!common.empty()) {
      const std::int64_t count = common.end - common.begin;
      const bool is_whole = count == range.count;
      inside.push_back({.name = range.name,
                        .offset = common.begin - part.begin,
                        .count = count,
                        .sizes = is_whole ? range.sizes : std::vector<std::int64_t>{}});
    }
  }
  return inside;
}

}  // namespace

Optimizer::Optimizer(const std::vector<NamedTensor>& tensors, std::vector<StateSlot> slots)
    : flat_(tensors), slots_(std::move(slots)) {}

at::Tensor Optimizer::own(const at::Tensor& flat) const {
  const dist::Group::Part part = shared_by_.own_part_of(flat.numel());
  return flat.slice(0, part.begin, part.end);
}

void Optimizer::make_state(const dist::Group& shared_by) {
  shared_by_ = shared_by;
  ranges_.clear();
  state_.clear();
  for (const FlatBuffer& buffer : flat_.buffers()) {
    ranges_.push_back(ranges_in(buffer.ranges, shared_by_.own_part_of(buffer.values.numel())));
    std::vector<at::Tensor>& state = state_.emplace_back();
    for (const StateSlot& slot : slots_) {
      initialize_slot(state.emplace_back(at::empty_like(own(buffer.values))), ranges_.back(),
                      slot.initial);
    }
  }
}

void Optimizer::reset() {
  updates_ = 0;
  for (std::size_t i = 0; i < state_.size(); ++i) {
    for (std::size_t slot = 0; slot < slots_.size(); ++slot) {
      initialize_slot(state_[i][slot], ranges_[i], slots_[slot].initial);
    }
  }
}

void Optimizer::step(double lr) {
  const at::NoGradGuard no_grad;
  ++updates_;
  for (std::size_t i = 0; i < state_.size(); ++i) {
    const FlatBuffer& buffer = flat_.buffers()[i];
    const at::Tensor values = own(buffer.values);
    if (values.numel() > 0) {
      apply({.values = values,
             .gradients = own(buffer.gradients),
             .state = state_[i],
             .ranges = ranges_[i],
             .lr = lr,
             .number = updates_});
    }
    shared_by_.share_parts(buffer.values);
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

std::vector<at::Tensor> Optimizer::flat_gradients() const {
  std::vector<at::Tensor> gradients;
  for (const FlatBuffer& buffer : flat_.buffers()) {
    gradients.push_back(own(buffer.gradients));
  }
  return gradients;
}

std::vector<NamedTensor> Optimizer::named_state() const {
  TORCH_CHECK(shared_by_.size() == 1, "the state of a shared optimizer is not whole");
  return named_state_of(state_);
}

std::vector<NamedTensor> Optimizer::named_state_of(
    const std::vector<std::vector<at::Tensor>>& flat) const {
  std::vector<std::vector<at::Tensor>> views;  // of each slot
  for (std::size_t slot = 0; slot < slots_.size(); ++slot) {
    std::vector<at::Tensor> of_slot;
    for (const std::vector<at::Tensor>& state : flat) {
      of_slot.push_back(state[slot]);
    }
    views.push_back(flat_.views_of(of_slot));
  }
  std::vector<NamedTensor> result;
  for (std::size_t i = 0; i < parameters().size(); ++i) {
    for (std::size_t slot = 0; slot < slots_.size(); ++slot) {
      result.push_back({parameters()[i].name + '.' + slots_[slot].name, views[slot][i], false});
    }
  }
  return result;
}

std::vector<std::vector<at::Tensor>> Optimizer::room_for_state() const {
  std::vector<std::vector<at::Tensor>> room;
  for (const FlatBuffer& buffer : flat_.buffers()) {
    std::vector<at::Tensor>& slots = room.emplace_back();
    for (std::size_t slot = 0; slot < slots_.size(); ++slot) {
      slots.push_back(room_for(buffer.values));
    }
  }
  return room;
}

void Optimizer::copy_state_to(const std::vector<std::vector<at::Tensor>>& flat) const {
  for (std::size_t i = 0; i < state_.size(); ++i) {
    const std::int64_t elements = flat_.buffers()[i].values.numel();
    for (std::size_t slot = 0; slot < slots_.size(); ++slot) {
      shared_by_.collect_parts(state_[i][slot], elements,
                               shared_by_.rank() == 0 ? flat[i][slot] : at::Tensor());
    }
  }
}

void Optimizer::take_state(std::size_t parameter, std::size_t slot, const at::Tensor& whole) {
  const auto [buffer, range] = flat_.place_of(parameter);
  const FlatRange& place = flat_.buffers()[buffer].ranges[range];
  const dist::Group::Part part = shared_by_.own_part_of(flat_.buffers()[buffer].values.numel());
  const dist::Group::Part common = part.common_with({place.offset, place.offset + place.count});
  if (!common.empty()) {
    state_[buffer][slot]
        .slice(0, common.begin - part.begin, common.end - part.begin)
        .copy_(
            whole.reshape({-1}).slice(0, common.begin - place.offset, common.end - place.offset));
  }
}

}  // namespace transnormer
