// Perplexity on held-out text: every token scored once, in sliding windows, sums in double.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "data/token_stream.h"
#include "dist/group.h"
#include "model/transnormer.h"

namespace transnormer {

struct EvaluateOptions {
  std::int64_t window = 512;        // inputs a window
  std::int64_t context_window = 0;  // windows advance by window - context_window
  std::int64_t batch_size = 8;      // windows a pass; the result moves by rounding only
  std::int64_t max_tokens = 0;      // scores the first so many (scored_tokens()); 0: all
  at::ScalarType compute = at::kFloat;
  TokenId first_input = 0;  // stands before the first token
  // Called in stream order with the losses of tokens [index, index + nll.size()).
  std::function<void(std::int64_t index, std::span<const float> nll)> on_tokens = nullptr;
  std::function<void(std::int64_t done)> on_progress = nullptr;  // tokens scored so far
  std::function<bool()> should_stop = nullptr;                   // asked between batches
  // Processes that evaluate together, with the same model, stream and numbers above. Those of
  // `sequence` share each window, a neighbouring part of its inputs each. Those of `batches` are
  // dealt the batches whole, batch i to rank i mod size. A process may be in both; then all of a
  // `sequence` have one rank in theirs of `batches`. Every process has the whole result and makes
  // all calls, in stream order; where one should stop, all do.
  dist::Group sequence{};
  dist::Group batches{};
};

// Windows of so many tokens that a pass takes where nothing says how many.
[[nodiscard]] std::int64_t windows_a_pass(at::Device device, std::int64_t window);

struct EvaluateResult {
  bool complete = true;  // false where should_stop said so
  std::int64_t tokens = 0;
  double nll_sum = 0;  // nats
  double nll_square_sum = 0;
  [[nodiscard]] double nll() const { return nll_sum / static_cast<double>(tokens); }
  // Standard error of the mean, tokens taken as independent.
  [[nodiscard]] double nll_stderr() const;
};

// How many of a stream's tokens are scored: as many whole windows as max_tokens holds, and at least
// one, so that each of these tokens has the loss that it has where all are scored.
[[nodiscard]] std::int64_t scored_tokens(std::int64_t tokens, const EvaluateOptions& options);

// Windows of `window` inputs; only targets that no window before has scored count; positions start
// anew in each window. The model's training flag plays no part: dropout is off, gradients are off.
// With equal threads, batches that are shared out give the bits of one process; windows that are
// shared move the result by rounding. Throws UserError where the options do not fit together or
// the model cannot share windows.
[[nodiscard]] EvaluateResult evaluate(TransNormer& model, const TokenStream& stream,
                                      const EvaluateOptions& options);

// Mean nats a token of an add-one unigram, p = (count + 1) / (sum of counts + V), on the stream.
[[nodiscard]] double unigram_nll(const TokenStream& stream,
                                 const std::vector<std::int64_t>& counts);

}  // namespace transnormer
