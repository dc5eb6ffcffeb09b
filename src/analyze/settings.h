// Settings of an attention by their keys, for measurements that ask any attention for them.
#pragma once

#include <optional>
#include <string>

#include "config/config.h"

namespace transnormer {

// The value of a setting that is true or false, or one of a few spellings; nothing where the
// attention has none by that key.
[[nodiscard]] std::optional<bool> flag_of(const AttentionConfig& attention, const std::string& key);
[[nodiscard]] std::optional<std::string> choice_of(const AttentionConfig& attention,
                                                   const std::string& key);

// The same attention with another value; it must have the setting, and that spelling.
[[nodiscard]] AttentionConfig with_flag(AttentionConfig attention, const std::string& key,
                                        bool value);
[[nodiscard]] AttentionConfig with_choice(AttentionConfig attention, const std::string& key,
                                          const std::string& value);

}  // namespace transnormer
