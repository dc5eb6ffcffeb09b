// What a run's log says of its gradients over the iterations.
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>

namespace transnormer {

// The relative standard deviation of the gradients' norms over the iterations by group ("all",
// "layers.0", ..), as the last line of metrics.jsonl that tells it has it (Qin et al. 2022, table
// 2); nothing where no line does. Torn lines are passed over.
[[nodiscard]] std::optional<std::map<std::string, double>> relative_deviations(
    const std::filesystem::path& metrics);

}  // namespace transnormer
