#include "ops/trust/trial_process.h"

#include <charconv>
#include <exception>
#include <string_view>

#include "ops/runtime/cuda_library.h"
#include "ops/runtime/device.h"
#include "ops/trust/judge.h"
#include "util/child_process.h"
#include "util/error.h"

namespace transnormer::ops {
namespace {

bool main_answers = false;

}  // namespace

bool is_kernel_trial(int argc, char** argv) {
  const bool is_trial = argc == 3 && std::string_view(argv[1]) == kKernelTrial;
  main_answers = !is_trial;
  return is_trial;
}

bool kernel_trials_possible() {
  return main_answers;
}

int run_kernel_trial(char** argv) {
  follow_parent();
  std::size_t first = 0;
  const std::string_view number = argv[2];
  (void)std::from_chars(number.data(), number.data() + number.size(), first);
  try {
    const at::Device device = select_device(DeviceChoice::cuda);
    configure_threads(1, /*deterministic=*/false);
    if (cuda_library() != nullptr) {
      return run_trials(*cuda_library()->kernels, device, first);
    }
  } catch (const std::exception&) {  // told by the status: nobody reads this process's messages
  }
  return static_cast<int>(ExitStatus::our_fault);
}

}  // namespace transnormer::ops
