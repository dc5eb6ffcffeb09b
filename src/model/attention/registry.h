// The attentions that a config can name. An attention is its settings struct in AttentionConfig, a
// file here, and a line below; leaving the line out is an error of the compiler.
#pragma once

#include <memory>

#include "config/config.h"
#include "model/attention/attention.h"

namespace transnormer {

[[nodiscard]] std::shared_ptr<Attention> make_attention(const DiagAttentionConfig& config,
                                                        const AttentionSettings& settings);
[[nodiscard]] std::shared_ptr<Attention> make_attention(const NormAttentionConfig& config,
                                                        const AttentionSettings& settings);
[[nodiscard]] std::shared_ptr<Attention> make_attention(const SoftmaxAttentionConfig& config,
                                                        const AttentionSettings& settings);

// Whichever the config holds.
[[nodiscard]] inline std::shared_ptr<Attention> make_attention(const AttentionConfig& config,
                                                               const AttentionSettings& settings) {
  return std::visit([&](const auto& chosen) { return make_attention(chosen, settings); }, config);
}

}  // namespace transnormer
