#include "ops/trust/trust.h"

#include <torch/version.h>

#include "log/console.h"
#include "ops/runtime/kernel_table.h"
#include "ops/runtime/operator_choices.h"
#include "ops/trust/cuda_driver.h"
#include "ops/trust/kernel_names.h"
#include "ops/trust/trial_process.h"
#include "util/error.h"
#include "util/hash.h"
#include "util/input_file.h"

namespace transnormer::ops {
namespace fs = std::filesystem;
namespace {

Faults all_untried(const std::string& why) {
  Faults faults;
  for_each_kernel([&](const char* name, auto) { faults[name] = why; });
  return faults;
}

std::string listed(const Faults& faults) {
  std::string text;
  for (const auto& [kernel, fault] : faults) {
    text += (text.empty() ? "" : "; ") + kernel + ": " + fault;
  }
  return text;
}

Faults tell(const Faults& faults, bool is_proven) {
  if (!faults.empty()) {
    log::warn(
        "kernels that do not give what they should on this GPU are left out, LibTorch's "
        "slower operations serve in their place: " +
        listed(faults) + (is_proven ? "" : "; all are tried again at the next start"));
  }
  return faults;
}

Faults faults_of(const TrustQuestion& question) {
  if (question.key) {
    if (auto kept = load_verdict(*question.key, question.folders)) {
      return tell(*kept, /*is_proven=*/true);
    }
  }
  const std::optional<Judgement> found = question.judge();
  if (!found) {
    log::warn(
        "the kernels for this GPU could not be tried, so LibTorch's slower operations serve this "
        "time");
    return all_untried("untried");
  }
  if (question.key && found->is_proven) {
    save_verdict(*question.key, found->faults, question.folders);
  }
  return tell(found->faults, found->is_proven);
}

}  // namespace

kernels::Kernels trusted_kernels(const kernels::Kernels& table, const TrustQuestion& question) {
  const Faults faults = faults_of(question);
  kernels::Kernels trusted = table;
  for_each_kernel([&](const char* name, auto member) {
    if (faults.contains(name)) {
      trusted.*member = nullptr;
    }
  });
  return trusted;
}

kernels::Kernels trusted_gpu_kernels(const kernels::Kernels& table, const fs::path& file) {
  if (!kernel_trials_possible() || !operator_choices().kernels) {
    return table;
  }
  TrustQuestion question;
  if (const std::optional<GpuIdentity> gpu = identify_gpu()) {
    question.key = VerdictKey{gpu->device, gpu->driver,
                              sha256(InputFile(file)) + ", LibTorch " + TORCH_VERSION};
  }
  question.folders = {file.parent_path()};
  if (const std::optional<fs::path> cache = user_cache()) {
    question.folders.push_back(*cache);
  }
  question.judge = []() -> std::optional<Judgement> {
    try {
      return judge({kKernelTrial});
    } catch (const UserError&) {
      return std::nullopt;
    }
  };
  return trusted_kernels(table, question);
}

std::string describe_kernels(const c10::Device& device) {
  const kernels::Kernels& table = kernels_in_use(device.type());
  std::string missing;
  bool some = false;
  for_each_kernel([&](const char* name, auto member) {
    if (table.*member == nullptr) {
      missing += missing.empty() ? " without " : ", ";
      missing += name;
    } else {
      some = true;
    }
  });
  return some && operator_choices().kernels ? table.name + missing : "of LibTorch";
}

}  // namespace transnormer::ops
