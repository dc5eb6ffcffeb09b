// A prompt that is continued several times is read once: what was remembered of it becomes that of
// several sequences.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "model/context.h"

namespace transnormer {

// What a state of a single sequence may be beside AttentionState. One that is not is read anew for
// each continuation.
class RepeatableState {
 public:
  virtual ~RepeatableState() = default;
  [[nodiscard]] virtual bool can_repeat() const { return true; }
  // From one sequence to so many alike, each with every bit of it.
  virtual void repeat(std::int64_t times) = 0;
};

// Whether all layers' states can.
[[nodiscard]] bool can_repeat(const ModelState& state);
// Of a state that can.
void repeat(ModelState& state, std::int64_t times);

[[nodiscard]] bool can_repeat(const AttentionState& state);
void repeat(AttentionState& state, std::int64_t times);

// x: [1, ..], repeated to [times, ..]; an undefined one stays so.
void repeat_row(at::Tensor& x, std::int64_t times);

}  // namespace transnormer
