// What was found out about the kernels on a device, kept so that it need not be again.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "ops/trust/judge.h"

namespace transnormer::ops {

// What a verdict holds for.
struct VerdictKey {
  std::string device;  // its name and compute capability
  std::string driver;
  std::string build;  // of the kernels and of LibTorch

  bool operator==(const VerdictKey&) const = default;
};

// The verdict for exactly this key that one of the folders holds; nothing where none does. What is
// damaged, of another form or about other kernels than there are counts as none.
[[nodiscard]] std::optional<Faults> load_verdict(const VerdictKey& key,
                                                 const std::vector<std::filesystem::path>& folders);

// Writes it whole or not at all into the first folder that takes it, made where it is missing; in
// none where none does: then it is found out again. Processes may do so at once.
void save_verdict(const VerdictKey& key, const Faults& faults,
                  const std::vector<std::filesystem::path>& folders);

// $XDG_CACHE_HOME/transnormer, else ~/.cache/transnormer; nothing where neither can be told.
[[nodiscard]] std::optional<std::filesystem::path> user_cache();

}  // namespace transnormer::ops
