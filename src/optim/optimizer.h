// What every optimizer is to a training: it owns the gradients and its state under the parameters'
// names, and changes the parameters by a rule of its own.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include "model/weights.h"
#include "optim/flat_parameters.h"

namespace transnormer {

// A tensor that an optimizer keeps for each parameter, in its shape: "NAME.exp_avg" in files.
struct StateSlot {
  std::string name;
  double initial = 0;
};

// What a rule changes: the flat tensors of one buffer, all [elements] and laid out alike. Between
// the parameters lie zeros, which a rule must leave zeros.
struct OptimizerUpdate {
  const at::Tensor& values;
  const at::Tensor& gradients;
  const std::vector<at::Tensor>& state;  // in the order of the slots
  const std::vector<FlatRange>& ranges;  // for rules that are not the same for every element
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

  // Applies the parameters' gradients at this learning rate.
  void step(double lr);
  // Its state is that of before the first update again.
  void reset();
  // Sets the gradients to zero and keeps their memory.
  void zero_gradients();

  // "NAME.SLOT" of each slot, in the parameters' order; loading copies into them.
  [[nodiscard]] std::vector<NamedTensor> named_state() const;
  // Tensors kept for each parameter.
  [[nodiscard]] std::int64_t slots() const { return std::ssize(slots_); }
  // Applied so far.
  [[nodiscard]] std::int64_t updates() const { return updates_; }
  void set_updates(std::int64_t updates) { updates_ = updates; }

  [[nodiscard]] const FlatParameters& flat() const { return flat_; }
  [[nodiscard]] const std::vector<NamedTensor>& parameters() const { return flat_.parameters(); }
  // The parameters' gradients, in their order; they share the parameters' own.
  [[nodiscard]] std::vector<at::Tensor> gradients() const { return flat_.gradients(); }
  // The same memory in few long pieces, for what treats all elements alike.
  [[nodiscard]] std::vector<at::Tensor> flat_gradients() const { return flat_.flat_gradients(); }

 protected:
  // Tensors that are not trainable are left out; the others move (FlatParameters).
  Optimizer(const std::vector<NamedTensor>& tensors, std::vector<StateSlot> slots);

  // Changes the parameters of one buffer. Called without autograd.
  virtual void apply(const OptimizerUpdate& update) = 0;

 private:
  FlatParameters flat_;
  std::vector<StateSlot> slots_;
  std::vector<std::vector<at::Tensor>> state_;  // of each buffer, of each slot: [elements]
  std::int64_t updates_ = 0;
};

}  // namespace transnormer
