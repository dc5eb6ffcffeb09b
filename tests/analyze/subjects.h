// Small models with random tokens to analyse.
#pragma once

#include "analyze/subject.h"
#include "analyze/weights.h"

namespace transnormer::test {

// Initial weights; `windows` windows of `length` tokens.
[[nodiscard]] Subject make_subject(const ModelConfig& model, std::int64_t windows = 2,
                                   std::int64_t length = 20);

// All layers and heads.
[[nodiscard]] Selection everything(const ModelConfig& model);

}  // namespace transnormer::test
