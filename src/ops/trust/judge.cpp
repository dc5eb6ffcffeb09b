#include "ops/trust/judge.h"

#include <cstdio>
#include <exception>

#include "ops/trust/trials.h"
#include "util/child_process.h"
#include "util/error.h"

namespace transnormer::ops {
namespace {

using Answer = ChildProcess::Answer;

constexpr const char* kReady = "ready";
constexpr const char* kBegin = "begin";
constexpr const char* kAgrees = "agrees";
constexpr const char* kFails = "it fails: ";

void tell(const std::string& line) {
  std::fputs((line + '\n').c_str(), stdout);
  std::fflush(stdout);
}

// What the first use of a GPU takes (the library's own start, and the translation of our kernels
// for one that is newer than they are) is no part of the first trial's time. What goes wrong here
// is told by the kernels' own trials.
void make_ready(const kernels::Kernels& table, const c10::Device& device) {
  for (const KernelTrial& trial : kernel_trials()) {
    // A product of the library, and a kernel of ours.
    if (trial.kernel == "accumulate" || trial.kernel == "add_column_sums") {
      try {
        (void)disagreement(trial, table, device);
      } catch (const std::exception&) {
      }
    }
  }
}

struct Finding {
  std::string fault;  // empty where the kernel agrees
  bool is_proven = true;
  bool goes_on = true;  // false where the process has ended or must be
};

// How the process that tried a kernel ended: SIGKILL comes from elsewhere, as where the system is
// out of memory.
Finding ended(const std::string& ending) {
  const bool crashed =
      ending.starts_with("was ended by signal ") && !ending.starts_with("was ended by signal 9 ");
  return {"the process that tried it " + (ending.empty() ? "ended early" : ending), crashed, false};
}

// The answer to one trial.
Finding hear(ChildProcess& process, const TrialLimits& limits) {
  std::string line;
  const auto take = [&] { return process.receive_line(line, limits.trial); };
  Answer answer = take();
  if (answer == Answer::line && line == kBegin) {
    answer = take();
  }
  switch (answer) {
    case Answer::line:
      return {line == kAgrees ? "" : line, !line.starts_with(kFails), true};
    case Answer::late:
      return {"it gives no results", false, false};
    case Answer::ended:
      break;
  }
  return ended(process.ending());
}

}  // namespace

int run_trials(const kernels::Kernels& table, const c10::Device& device, std::size_t first) {
  make_ready(table, device);
  tell(kReady);
  const std::vector<KernelTrial>& trials = kernel_trials();
  for (std::size_t i = first; i < trials.size(); ++i) {
    tell(kBegin);
    try {
      const std::string fault = disagreement(trials[i], table, device);
      tell(fault.empty() ? kAgrees : fault);
    } catch (const std::exception& error) {
      tell(kFails + first_line(error.what()));
    }
  }
  return 0;
}

std::optional<Judgement> judge(const std::vector<std::string>& command, const TrialLimits& limits) {
  const std::vector<KernelTrial>& trials = kernel_trials();
  Judgement result;
  std::size_t next = 0;
  for (int crashes = 0; next < trials.size(); ++crashes) {
    if (crashes == limits.crashes) {
      for (; next < trials.size(); ++next) {
        result.faults[trials[next].kernel] =
            "untried, after others ended or held the process that tries";
      }
      result.is_proven = false;
      break;
    }
    std::vector<std::string> arguments = command;
    arguments.push_back(std::to_string(next));
    ChildProcess process(arguments);
    std::string line;
    if (process.receive_line(line, limits.loading) != Answer::line || line != kReady) {
      return std::nullopt;
    }
    for (bool goes_on = true; goes_on && next < trials.size(); ++next) {
      const Finding finding = hear(process, limits);
      goes_on = finding.goes_on;
      result.is_proven = result.is_proven && finding.is_proven;
      if (!finding.fault.empty()) {
        result.faults[trials[next].kernel] = finding.fault;
      }
    }
  }
  return result;
}

}  // namespace transnormer::ops
