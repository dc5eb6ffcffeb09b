// Whether a GPU that our kernels have never met runs them as they are meant: each is tried in a
// process of its own before it is used, and left out where it does not give what LibTorch's
// operations give.
#pragma once

#include <c10/core/Device.h>

#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "ops/kernels/kernels.h"
#include "ops/trust/judge.h"
#include "ops/trust/verdict.h"

namespace transnormer::ops {

struct TrustQuestion {
  std::optional<VerdictKey> key;               // nothing: it is found out each time
  std::vector<std::filesystem::path> folders;  // where the verdict may be kept, the best first
  std::function<std::optional<Judgement>()> judge;
};

// The kernels of `table` that are trusted; a warning names those that are left out, and why. By the
// verdict that is kept, else by `judge`. Where that tells nothing, none is trusted this time; what
// it does not prove holds for this time only, too.
[[nodiscard]] kernels::Kernels trusted_kernels(const kernels::Kernels& table,
                                               const TrustQuestion& question);

// The same for the GPU and its library in `file`, whose kernels `table` are. Call before this
// process uses the GPU: another may be refused one that is in use. All are trusted where
// kernel_trials_possible() is false.
[[nodiscard]] kernels::Kernels trusted_gpu_kernels(const kernels::Kernels& table,
                                                   const std::filesystem::path& file);

// The kernels in use on the device, for the description of what a run was made with: "avx512",
// "cuda", "cuda without block_attention".
[[nodiscard]] std::string describe_kernels(const c10::Device& device);

}  // namespace transnormer::ops
