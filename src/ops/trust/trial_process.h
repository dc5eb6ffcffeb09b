// The process that tries a GPU's kernels is this program, started once more.
#pragma once

namespace transnormer::ops {

// Whether this process was started to try kernels: main must ask first of all, and then do nothing
// else than return run_kernel_trial(argv).
[[nodiscard]] bool is_kernel_trial(int argc, char** argv);
int run_kernel_trial(char** argv);

// Whether such a process can be started: the main of this one has asked, and the answer was no.
[[nodiscard]] bool kernel_trials_possible();

// The arguments that start one, but for the number of the trial.
inline constexpr const char* kKernelTrial = "kernel-trial";

}  // namespace transnormer::ops
