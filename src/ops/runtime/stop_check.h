// How a pass that takes long is cut short: between its parts it asks whether it is still wanted.
#pragma once

#include <exception>
#include <functional>

namespace transnormer::ops {

using ShouldStop = std::function<bool()>;

// Leaves the pass; autograd hands it through. What the pass was adding to is a part only.
class PassStopped : public std::exception {
 public:
  [[nodiscard]] const char* what() const noexcept override { return "the pass was stopped"; }
};

// Throws PassStopped where the answer is yes; null never stops.
inline void throw_if_unwanted(const ShouldStop* should_stop) {
  if (should_stop != nullptr && (*should_stop)()) {
    throw PassStopped();
  }
}

}  // namespace transnormer::ops
