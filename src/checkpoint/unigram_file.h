// unigram.bin: how often each token occurs in the training stream. Internal to src/checkpoint.
// Layout, little-endian: "TNUNIGRM", version (int64), count (int64), the counts (int64 each).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace transnormer {

[[nodiscard]] std::string unigram_to_bytes(const std::vector<std::int64_t>& counts);

// `name` stands in messages. Throws DamagedCheckpointError for another file, one cut short, or
// counts that are none, UserError for another version.
[[nodiscard]] std::vector<std::int64_t> unigram_from_bytes(std::string_view bytes,
                                                           const std::string& name);

}  // namespace transnormer
