// The CPU's kernels with one that does not do what it should.
#pragma once

#include <string>
#include <vector>

#include "ops/kernels/kernels.h"

namespace transnormer::ops {

// "honest", or what goes wrong: "wrong" (srms_norm is one per cent off), "wrong_backward"
// (block_attention_backward forgets d(values)), "nan" (cross_entropy), "throws" (gated), "out of
// memory" (gated), "crashes" (dropout), "killed" (dropout, as by the system), "hangs" (feature),
// "ends" (lrpe ends the process well).
[[nodiscard]] kernels::Kernels lying_kernels(const std::string& how);

// The command that makes the test program try them, see worker_main.cpp.
[[nodiscard]] std::vector<std::string> trial_of(const std::string& how);
inline constexpr const char* kTrialOfLying = "trial-of-lying";

}  // namespace transnormer::ops
