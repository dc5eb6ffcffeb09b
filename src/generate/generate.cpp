#include "generate/generate.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <optional>
#include <span>
#include <string>

#include "ops/runtime/reused_memory.h"
#include "tokenizer/plain_text.h"
#include "util/error.h"

namespace transnormer {
namespace {

// Brings the state up to date with `tokens`; [1, tokens, dim], after the last norm.
at::Tensor read(TransNormer& model, std::span<const TokenId> tokens, const ForwardContext& context,
                ModelState& state) {
  at::Tensor ids = at::empty({1, static_cast<std::int64_t>(tokens.size())}, at::kLong);
  std::copy(tokens.begin(), tokens.end(), ids.data_ptr<std::int64_t>());
  return model.forward(ids.to(model.device()), context, &state);
}

at::Tensor read_prompt(TransNormer& model, std::span<const TokenId> inputs, std::size_t chunk,
                       const ForwardContext& context, ModelState& state) {
  while (inputs.size() > chunk) {
    (void)read(model, inputs.first(chunk), context, state);
    inputs = inputs.subspan(chunk);
  }
  return read(model, inputs, context, state);
}

// What may follow the last token read, chosen.
TokenId choose(const TransNormer& model, const at::Tensor& hidden, const ForwardContext& context,
               Sampler& sampler, std::uint64_t index) {
  const at::Tensor logits =
      model.logits(hidden.select(1, -1), context).flatten().to(at::kCPU).contiguous();
  return sampler.sample({logits.data_ptr<float>(), static_cast<std::size_t>(logits.size(0))},
                        index);
}

}  // namespace

std::vector<TokenId> encode_prompt(std::string_view prompt, const Tokenizer& tokenizer,
                                   const DataConfig& config) {
  std::string cleaned(without_byte_order_mark(prompt));
  if (config.strip_cr) {
    drop_carriage_returns(cleaned);
  }
  std::string_view text = cleaned;
  std::vector<TokenId> ids;
  if (config.line_end == LineEnd::keep) {
    tokenizer.encode_line(text, ids);
    return ids;
  }
  const std::optional<TokenId> end = tokenizer.end_id();
  while (!text.empty()) {
    const std::size_t newline = text.find('\n');
    tokenizer.encode_line(text.substr(0, newline), ids);
    if (newline == std::string_view::npos) {
      break;
    }
    if (config.line_end == LineEnd::eos && end) {
      ids.push_back(*end);
    }
    text.remove_prefix(newline + 1);
  }
  return ids;
}

void check(const TransNormer& model, const std::vector<TokenId>& inputs,
           const GenerateOptions& options) {
  check(options.sampling);
  if (options.max_tokens < 0) {
    throw UserError("max-tokens must be at least 0");
  }
  // The last new token is never read.
  const std::int64_t positions =
      std::ssize(inputs) + std::max<std::int64_t>(options.max_tokens - 1, 0);
  const std::optional<std::int64_t> most = model.most_positions();
  if (most && positions > *most) {
    throw UserError("the prompt and " + std::to_string(options.max_tokens) + " new tokens need " +
                    std::to_string(positions) + " positions, but the model has only " +
                    std::to_string(*most) +
                    " (data.tokens_per_sample, or the horizon of an attention): shorten either");
  }
}

std::vector<TokenId> generate(TransNormer& model, const std::vector<TokenId>& inputs,
                              const GenerateOptions& options) {
  check(model, inputs, options);
  std::vector<TokenId> chosen;
  if (options.max_tokens == 0) {
    return chosen;
  }
  const at::NoGradGuard no_grad;
  ForwardContext context;
  context.compute = options.compute;
  ModelState state = model.make_state(1);
  const auto chunk = static_cast<std::size_t>(std::max<std::int64_t>(options.prompt_chunk, 1));
  Sampler sampler(options.sampling);
  const ops::ReusedMemory memory;
  at::Tensor hidden = read_prompt(model, inputs, chunk, context, state);
  for (std::int64_t i = 0; i < options.max_tokens; ++i) {
    const ops::ReusedMemory::Use use(memory);
    if (i > 0) {
      hidden = read(model, {&chosen.back(), 1}, context, state);
    }
    chosen.push_back(choose(model, hidden, context, sampler, static_cast<std::uint64_t>(i)));
    if (options.on_token && !options.on_token(chosen.back())) {
      break;
    }
  }
  return chosen;
}

}  // namespace transnormer
