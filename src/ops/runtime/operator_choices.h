// Which of several ways to the same result operators go: what gives the same but for rounding, and
// differs in speed.
#pragma once

#include <cstdint>

namespace transnormer::ops {

enum class Use : std::uint8_t { where_it_helps, never, always };

// Whether what is to be used so is used where `helps` tells whether it helps.
[[nodiscard]] constexpr bool is_used(Use use, bool helps) {
  return use == Use::always || (use == Use::where_it_helps && helps);
}

struct OperatorChoices {
  bool kernels = true;  // of ours; else LibTorch's own operations serve
  bool graphs = true;   // a GPU's passes become CUDA graphs
  // Rows of 16 bytes or a multiple: helps the half-precision products of a GPU.
  Use row_pitch = Use::where_it_helps;
  // The library's fused attention for softmax in blocks: helps in half precision on a GPU.
  Use fused_attention = Use::where_it_helps;
};

// By the environment's TRANSNORMER_OPERATORS, read once: words separated by commas, of
//   plain             no kernels of ours
//   launched          no CUDA graphs
//   dense-rows        no row pitch
//   own-attention     no fused attention in blocks
// Throws UserError for any other.
[[nodiscard]] const OperatorChoices& operator_choices();

// Other choices while it lives, on all threads. For tests and trials.
class ChoicesGuard {
 public:
  explicit ChoicesGuard(const OperatorChoices& choices);
  ~ChoicesGuard();
  ChoicesGuard(const ChoicesGuard&) = delete;
  ChoicesGuard& operator=(const ChoicesGuard&) = delete;

 private:
  OperatorChoices former_;
};

}  // namespace transnormer::ops
