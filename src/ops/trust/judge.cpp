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

void tell(const std::string& line) {
  std::fputs((line + '\n').c_str(), stdout);
  std::fflush(stdout);
}

// The answer to one trial: its fault, or nothing; `goes_on` becomes false where the process has
// ended or must be.
std::optional<std::string> hear(ChildProcess& process, const TrialLimits& limits, bool& goes_on) {
  std::string line;
  const auto take = [&] { return process.receive_line(line, limits.trial); };
  Answer answer = take();
  if (answer == Answer::line && line == kBegin) {
    answer = take();
  }
  goes_on = answer == Answer::line;
  switch (answer) {
    case Answer::line:
      return line == kAgrees ? std::nullopt : std::optional(line);
    case Answer::late:
      return "it gives no results";
    case Answer::ended:
      break;
  }
  const std::string ending = process.ending();
  return "the process that tried it " + (ending.empty() ? "ended early" : ending);
}

}  // namespace

int run_trials(const kernels::Kernels& table, const c10::Device& device, std::size_t first) {
  tell(kReady);
  const std::vector<KernelTrial>& trials = kernel_trials();
  for (std::size_t i = first; i < trials.size(); ++i) {
    tell(kBegin);
    try {
      const std::string fault = disagreement(trials[i], table, device);
      tell(fault.empty() ? kAgrees : fault);
    } catch (const std::exception& error) {
      tell("it fails: " + first_line(error.what()));
    }
  }
  return 0;
}

std::optional<Faults> judge(const std::vector<std::string>& command, const TrialLimits& limits) {
  const std::vector<KernelTrial>& trials = kernel_trials();
  Faults faults;
  std::size_t next = 0;
  for (int crashes = 0; next < trials.size(); ++crashes) {
    if (crashes == limits.crashes) {
      for (; next < trials.size(); ++next) {
        faults[trials[next].kernel] = "untried, after others ended or held the process that tries";
      }
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
      if (const auto fault = hear(process, limits, goes_on)) {
        faults[trials[next].kernel] = *fault;
      }
    }
  }
  return faults;
}

}  // namespace transnormer::ops
