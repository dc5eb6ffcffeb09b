// Which texts a config has.
#pragma once

#include "config/config.h"

namespace transnormer {

// The share of data.train that serves as valid: data.holdout acts where data.valid is not given.
[[nodiscard]] inline double held_out_share(const DataConfig& data) {
  return data.valid.empty() && !data.train.empty() ? data.holdout : 0;
}

[[nodiscard]] inline bool has_valid(const DataConfig& data) {
  return !data.valid.empty() || held_out_share(data) > 0;
}

}  // namespace transnormer
