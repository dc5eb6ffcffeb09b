// Continues a text token by token, by the model's recurrent form: what a step costs and what is
// kept do not grow with the text (except under softmax attention, which remembers all of it).
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "config/config.h"
#include "generate/sampling.h"
#include "model/transnormer.h"
#include "tokenizer/tokenizer.h"

namespace transnormer {

// The tokens of a prompt, line by line as in training: the end token follows each line that a '\n'
// ends (where it stands for them); what stands after the last '\n' is open and gets none. Where
// line ends are kept, the prompt is one text. A byte order mark and, with strip_cr, carriage
// returns at line ends are no part of the text.
[[nodiscard]] std::vector<TokenId> encode_prompt(std::string_view text, const Tokenizer& tokenizer,
                                                 const DataConfig& config);

struct GenerateOptions {
  std::int64_t max_tokens = 100;
  SamplingOptions sampling{};
  at::ScalarType compute = at::kFloat;
  std::int64_t prompt_chunk = 512;  // prompt tokens a pass; does not change the result
  // Called as each is chosen; false ends the text there.
  std::function<bool(TokenId)> on_token = nullptr;
  // Asked before the prompt is read for texts that are decoded together; from the first yes on,
  // texts stay empty.
  std::function<bool()> should_stop = nullptr;
};

// Texts that are decoded together at most.
inline constexpr std::int64_t kTextsTogether = 16;

// Throws UserError where an option is out of its range, or a learned position table is too short
// for inputs and new tokens together.
void check(const TransNormer& model, const std::vector<TokenId>& inputs,
           const GenerateOptions& options);

// The model reads `inputs` (the tokenizer's first input, then the prompt), the first at position 0,
// then each token that it chose. Returns the new tokens. Checks first.
std::vector<TokenId> generate(TransNormer& model, const std::vector<TokenId>& inputs,
                              const GenerateOptions& options);

// Several texts that continue the same inputs: text i is that of options.sampling.sample + i. The
// prompt is read once and up to kTextsTogether of them are decoded together, where the model's
// states can be repeated (model/repeatable_state.h); else one after another. A text does not depend
// on how many there are: on a CPU to the bit, on a GPU, whose products depend on the number of
// rows, but for rounding. on_token is asked with the text's number in `texts`, in place of
// options.on_token. Returns the new tokens of each.
std::vector<std::vector<TokenId>> generate_texts(
    TransNormer& model, const std::vector<TokenId>& inputs, const GenerateOptions& options,
    std::int64_t texts, const std::function<bool(std::int64_t text, TokenId)>& on_token = nullptr);

// What new tokens add to a prompt's text. The prompt's ids are without the first input.
[[nodiscard]] std::string continuation(const Tokenizer& tokenizer,
                                       std::span<const TokenId> prompt_ids,
                                       std::span<const TokenId> tokens);

}  // namespace transnormer
