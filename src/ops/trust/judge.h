// Tries kernels in a process of their own, which they may crash or hang.
#pragma once

#include <c10/core/Device.h>

#include <chrono>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "ops/kernels/kernels.h"

namespace transnormer::ops {

// Why kernels are not trusted, by name; those that agree are not in it.
using Faults = std::map<std::string, std::string>;

struct Judgement {
  Faults faults;
  // Whether all of it shows what the kernels do: results that agree or differ, a signal that ended
  // the process. What may have come of the moment shows nothing: no results in time, memory that
  // ended or another exception, SIGKILL, an early end, and what was left untried.
  bool is_proven = true;
};

struct TrialLimits {
  std::chrono::milliseconds loading{180'000};  // until the process is ready to begin
  std::chrono::milliseconds trial{10'000};     // of each kernel
  int crashes = 3;                             // after so many, what is untried is not trusted
};

// The process's side: makes the device ready, tries the kernels of `table` from trial number
// `first` on, and tells what it finds on standard output. Returns its exit status.
int run_trials(const kernels::Kernels& table, const c10::Device& device, std::size_t first);

// The other side: starts this program with `command` and, behind that, the number of the first
// trial; its main must then call run_trials. Starts it again behind a kernel that ended it or took
// too long. Nothing where the process did not get ready: that says nothing about the kernels.
// Throws UserError where no process can be started, StoppedError when a signal asks to stop.
[[nodiscard]] std::optional<Judgement> judge(const std::vector<std::string>& command,
                                             const TrialLimits& limits = {});

}  // namespace transnormer::ops
