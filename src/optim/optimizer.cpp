#include "optim/optimizer.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <utility>

#include "optim/no_decay.h"

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
    : flat_(tensors), slots_{std::move(slots)} {}

Optimizer::Optimizer(const std::vector<NamedTensor>& tensors, std::vector<StateSlot> slots,
                     std::vector<StateSlot> matrix_slots)
    : flat_(tensors, [](const NamedTensor& tensor) { return is_hidden_matrix(tensor) ? 1U : 0U; }),
      slots_{std::move(slots), std::move(matrix_slots)} {}

at::Tensor Optimizer::own(const at::Tensor& flat) const {
  const dist::Group::Part part = shared_by_.own_part_of(flat.numel());
  return flat.slice(0, part.begin, part.end);
}

void Optimizer::set_weight_decay(double weight_decay, const std::vector<std::string>& no_decay) {
  weight_decay_ = weight_decay;
  no_decay_ = no_decay;
  make_pieces();
}

void Optimizer::make_state(const dist::Group& shared_by) {
  shared_by_ = shared_by;
  state_.clear();
  for (const FlatBuffer& buffer : flat_.buffers()) {
    std::vector<at::Tensor>& state = state_.emplace_back();
    for (std::size_t slot = 0; slot < slots_in(buffer).size(); ++slot) {
      state.push_back(at::empty_like(own(buffer.values)));
    }
  }
  reset();
  make_pieces();
}

void Optimizer::reset() {
  updates_ = 0;
  for (std::size_t i = 0; i < state_.size(); ++i) {
    const FlatBuffer& buffer = flat_.buffers()[i];
    const std::vector<FlatRange> ranges =
        ranges_in(buffer.ranges, shared_by_.own_part_of(buffer.values.numel()));
    for (std::size_t slot = 0; slot < state_[i].size(); ++slot) {
      initialize_slot(state_[i][slot], ranges, slots_in(buffer)[slot].initial);
    }
  }
}

double Optimizer::weight_decay_of(const FlatRange& range) const {
  return is_without_decay(range.name, no_decay_) ? 0 : weight_decay_;
}

void Optimizer::make_pieces() {
  pieces_.clear();
  for (std::size_t i = 0; i < state_.size(); ++i) {
    pieces_.push_back(pieces_of(i));
  }
}

// A piece goes on where parameters of another decay begin; what lies between two belongs to the
// first.
std::vector<Optimizer::Piece> Optimizer::pieces_of(std::size_t buffer) const {
  const FlatBuffer& flat = flat_.buffers()[buffer];
  const at::Tensor values = own(flat.values);
  const at::Tensor gradients = own(flat.gradients);
  std::vector<FlatRange> left = ranges_in(flat.ranges, shared_by_.own_part_of(flat.values.numel()));
  std::vector<Piece> pieces;
  for (auto first = left.begin(); first != left.end();) {
    const double decay = weight_decay_of(*first);
    const auto next = std::find_if(
        first, left.end(), [&](const FlatRange& range) { return weight_decay_of(range) != decay; });
    const std::int64_t begin = first->offset;
    const std::int64_t end = next == left.end() ? values.numel() : next->offset;
    Piece& piece = pieces.emplace_back(Piece{.values = values.slice(0, begin, end),
                                             .gradients = gradients.slice(0, begin, end),
                                             .weight_decay = decay});
    for (const at::Tensor& slot : state_[buffer]) {
      piece.state.push_back(slot.slice(0, begin, end));
    }
    for (; first != next; ++first) {
      piece.ranges.push_back(std::move(*first));
      piece.ranges.back().offset -= begin;
    }
  }
  return pieces;
}

void Optimizer::step(double lr) {
  const at::NoGradGuard no_grad;
  ++updates_;
  for (std::size_t i = 0; i < state_.size(); ++i) {
    const FlatBuffer& buffer = flat_.buffers()[i];
    for (const Piece& piece : pieces_[i]) {
      apply({.values = piece.values,
             .gradients = piece.gradients,
             .state = piece.state,
             .ranges = piece.ranges,
             .of_matrices = buffer.kind != 0,
             .weight_decay = piece.weight_decay,
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
  std::vector<NamedTensor> result;
  for (std::size_t i = 0; i < parameters().size(); ++i) {
    const auto [buffer, range] = flat_.place_of(i);
    const FlatRange& place = flat_.buffers()[buffer].ranges[range];
    const std::vector<StateSlot>& slots = slots_of(i);
    for (std::size_t slot = 0; slot < slots.size(); ++slot) {
      result.push_back(
          {place.name + '.' + slots[slot].name, place.view_of(flat[buffer][slot]), false});
    }
  }
  return result;
}

const std::vector<StateSlot>& Optimizer::slots_of(std::size_t parameter) const {
  return slots_in(flat_.buffers()[flat_.place_of(parameter).buffer]);
}

double Optimizer::state_bytes() const {
  double bytes = 0;
  for (std::size_t i = 0; i < parameters().size(); ++i) {
    bytes += static_cast<double>(slots_of(i).size()) *
             static_cast<double>(parameters()[i].tensor.nbytes());
  }
  return bytes;
}

std::vector<std::vector<at::Tensor>> Optimizer::room_for_state() const {
  std::vector<std::vector<at::Tensor>> room;
  for (const FlatBuffer& buffer : flat_.buffers()) {
    std::vector<at::Tensor>& slots = room.emplace_back();
    for (std::size_t slot = 0; slot < slots_in(buffer).size(); ++slot) {
      slots.push_back(room_for(buffer.values));
    }
  }
  return room;
}

void Optimizer::copy_state_to(const std::vector<std::vector<at::Tensor>>& flat) const {
  for (std::size_t i = 0; i < state_.size(); ++i) {
    const std::int64_t elements = flat_.buffers()[i].values.numel();
    for (std::size_t slot = 0; slot < state_[i].size(); ++slot) {
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
