// The attentions that a config can name. An attention is one file here, or in a test: its settings
// (SettingsOf, config/union.h) with a member
//   std::shared_ptr<Attention> make(const AttentionSettings& settings) const;
// the module, and at the end
//   [[maybe_unused]] const bool kAdded = add_attention<MyAttentionConfig>();
// which src/model/CMakeLists.txt names among the sources that are always linked.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "config/config.h"
#include "model/attention/attention.h"

namespace transnormer {

using MakeAttention =
    std::function<std::shared_ptr<Attention>(const AttentionConfig&, const AttentionSettings&)>;

void add_maker(const std::string& name, MakeAttention make);

// True, so that it can initialise a variable before main().
template <class S>
bool add_attention() {
  add_maker(S::kName, [](const AttentionConfig& config, const AttentionSettings& settings) {
    return config.get<S>().make(settings);
  });
  return add_alternative<S>(attentions());
}

[[nodiscard]] std::shared_ptr<Attention> make_attention(const AttentionConfig& config,
                                                        const AttentionSettings& settings);

}  // namespace transnormer
