// What every optimizer is to a training: it owns the gradients and its state under the parameters'
// names, and changes the parameters by a rule of its own.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "dist/group.h"
#include "model/weights.h"
#include "optim/flat_parameters.h"

namespace transnormer {

// A tensor that an optimizer keeps for each parameter, in its shape: "NAME.exp_avg" in files.
struct StateSlot {
  std::string name;
  double initial = 0;
};

// What a rule changes: the flat tensors of one buffer, or of a part of it, all [elements] and laid
// out alike; parameters with and without weight decay come apart. Between the parameters lie zeros,
// which a rule must leave zeros.
struct OptimizerUpdate {
  const at::Tensor& values;
  const at::Tensor& gradients;
  const std::vector<at::Tensor>& state;  // in the order of the slots
  // For rules that are not the same for every element. Of a parameter that the part cuts, what lies
  // in the part, without its sizes.
  const std::vector<FlatRange>& ranges;
  bool of_matrices =
      false;  // is_hidden_matrix(), whole ones; of an optimizer that tells them apart
  double weight_decay = 0;
  double lr = 0;
  std::int64_t number = 0;  // of the update, from 1
};

// Every parameter has a gradient from construction on, zero until a backward pass adds to it, so
// that a parameter that the loss does not reach is treated like the others and the first update
// after a resume is like any other. An optimizer of one's own derives from this, names its slots
// and writes the rule.
class Optimizer {
 public:
  virtual ~Optimizer() = default;

  // 0 of those that `no_decay` names (optim/no_decay.h), and of all until this is called.
  void set_weight_decay(double weight_decay, const std::vector<std::string>& no_decay);
  // Makes the state. Shared by a group, each process keeps and updates its own part of every flat
  // buffer (Group::part_of); together they then have the same parameters and state as one.
  void make_state(const dist::Group& shared_by);
  [[nodiscard]] const dist::Group& shared_by() const { return shared_by_; }

  // Applies the parameters' gradients at this learning rate. Of a shared one only the gradients in
  // the own part count; all parameters are the new ones afterwards.
  void step(double lr);
  // Its state is that of before the first update again.
  void reset();
  // Sets the gradients to zero and keeps their memory.
  void zero_gradients();

  // "NAME.SLOT" of each slot of a parameter, in the parameters' order. Not of a shared one, which
  // has parts only.
  [[nodiscard]] std::vector<NamedTensor> named_state() const;
  // The same tensors as views of `flat`: of each buffer, of each slot, laid out as the state is.
  [[nodiscard]] std::vector<NamedTensor> named_state_of(
      const std::vector<std::vector<at::Tensor>>& flat) const;
  // Tensors on the CPU for the whole state, of each buffer and slot; their memory is there.
  [[nodiscard]] std::vector<std::vector<at::Tensor>> room_for_state() const;
  // Copies the whole state there; of a shared one, on process 0 of the group, and all processes
  // call it, the others with nothing.
  void copy_state_to(const std::vector<std::vector<at::Tensor>>& flat) const;
  // Takes what it keeps of one whole tensor of the state: that of parameter number `parameter`.
  void take_state(std::size_t parameter, std::size_t slot, const at::Tensor& whole);
  // What it keeps of parameter number `parameter`.
  [[nodiscard]] const std::vector<StateSlot>& slots_of(std::size_t parameter) const;
  // Of a hidden matrix, and of any other parameter.
  [[nodiscard]] const std::vector<StateSlot>& matrix_slots() const { return slots_.back(); }
  [[nodiscard]] const std::vector<StateSlot>& state_slots() const { return slots_.front(); }
  // Of the whole state.
  [[nodiscard]] double state_bytes() const;
  // Applied so far.
  [[nodiscard]] std::int64_t updates() const { return updates_; }
  void set_updates(std::int64_t updates) { updates_ = updates; }

  [[nodiscard]] const FlatParameters& flat() const { return flat_; }
  [[nodiscard]] const std::vector<NamedTensor>& parameters() const { return flat_.parameters(); }
  // The parameters' gradients, in their order; they share the parameters' own.
  [[nodiscard]] std::vector<at::Tensor> gradients() const { return flat_.gradients(); }
  // The same memory in few long pieces, for what treats all elements alike; of a shared one, the
  // own part of it.
  [[nodiscard]] std::vector<at::Tensor> flat_gradients() const;

 protected:
  // Tensors that are not trainable are left out; the others move (FlatParameters).
  Optimizer(const std::vector<NamedTensor>& tensors, std::vector<StateSlot> slots);
  // One that keeps something else of hidden matrices, which then have buffers of their own. It
  // cannot be shared by a group, which would cut them.
  Optimizer(const std::vector<NamedTensor>& tensors, std::vector<StateSlot> slots,
            std::vector<StateSlot> matrix_slots);

  // Changes the parameters of one buffer or a part of it. Called without autograd.
  virtual void apply(const OptimizerUpdate& update) = 0;

 private:
  // What one call of the rule changes.
  struct Piece {
    at::Tensor values;
    at::Tensor gradients;
    std::vector<at::Tensor> state = {};
    std::vector<FlatRange> ranges = {};
    double weight_decay = 0;
  };

  // The part of a flat tensor that this process updates.
  [[nodiscard]] at::Tensor own(const at::Tensor& flat) const;
  [[nodiscard]] double weight_decay_of(const FlatRange& range) const;
  void make_pieces();
  // Of the own part of a buffer, as few as there may be.
  [[nodiscard]] std::vector<Piece> pieces_of(std::size_t buffer) const;
  [[nodiscard]] const std::vector<StateSlot>& slots_in(const FlatBuffer& buffer) const {
    return slots_[buffer.kind];
  }

  FlatParameters flat_;
  std::vector<std::vector<StateSlot>> slots_;  // by kind: others, and hidden matrices if apart
  double weight_decay_ = 0;
  std::vector<std::string> no_decay_;
  dist::Group shared_by_;
  std::vector<std::vector<at::Tensor>> state_;  // of each buffer, of each slot its own part
  std::vector<std::vector<Piece>> pieces_;      // of each buffer
  std::int64_t updates_ = 0;
};

}  // namespace transnormer
