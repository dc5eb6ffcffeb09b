// A causal task on a stream that counts.
#pragma once

#include <memory>
#include <numeric>
#include <utility>
#include <vector>

#include "task/causal.h"
#include "tokenizer/tokenizer.h"

namespace transnormer::test {

// Tokens 0 .. count - 1, in samples of `length`.
inline std::shared_ptr<const CausalTask> counting_task(std::int64_t count, std::int64_t length) {
  std::vector<TokenId> tokens(static_cast<std::size_t>(count));
  std::iota(tokens.begin(), tokens.end(), 0);
  Config config;
  config.data.tokens_per_sample = length;
  PreparedData data;
  data.tokenizer = parse_tokenizer("a 1\nb 1\n", "dictionary");
  data.splits[0].emplace();
  data.splits[0]->stream = TokenStream(std::move(tokens));
  return std::make_shared<CausalTask>(config, std::move(data));
}

}  // namespace transnormer::test
