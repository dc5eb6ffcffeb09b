#include "generate/generate.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "model/repeatable_state.h"
#include "ops/runtime/reused_memory.h"
#include "tokenizer/plain_text.h"
#include "util/error.h"

namespace transnormer {
namespace {

using Tokens = std::vector<TokenId>;

// Brings the state up to date with `ids`, [texts, tokens]; [texts, tokens, dim], after the last
// norm.
at::Tensor read(TransNormer& model, const at::Tensor& ids, const ForwardContext& context,
                ModelState& state) {
  return model.forward(ids.to(model.device()), context, &state);
}

at::Tensor row_of(std::span<const TokenId> tokens) {
  at::Tensor ids = at::empty({1, static_cast<std::int64_t>(tokens.size())}, at::kLong);
  std::copy(tokens.begin(), tokens.end(), ids.data_ptr<std::int64_t>());
  return ids;
}

at::Tensor read_prompt(TransNormer& model, std::span<const TokenId> inputs, std::size_t chunk,
                       const ForwardContext& context, ModelState& state) {
  while (inputs.size() > chunk) {
    (void)read(model, row_of(inputs.first(chunk)), context, state);
    inputs = inputs.subspan(chunk);
  }
  return read(model, row_of(inputs), context, state);
}

// One of the texts that are decoded together.
struct Text {
  Text(const SamplingOptions& sampling, std::int64_t which, std::span<const TokenId> prompt)
      : number(which), sampler(sampling), penalty(sampling.repetition_penalty) {
    for (const TokenId id : prompt) {
      penalty.see(id);
    }
  }

  // What follows the last token read.
  void choose(std::span<float> logits) {
    penalty.apply(logits);
    chosen.push_back(sampler.sample(logits, chosen.size()));
    penalty.see(chosen.back());
  }

  std::int64_t number;
  Sampler sampler;
  RepetitionPenalty penalty;
  Tokens chosen = {};
  bool goes_on = true;
};

using OnToken = std::function<bool(std::int64_t text, TokenId)>;

// Whether any goes on. `logits`: [texts, vocabulary], or [1, vocabulary] for all of them.
bool choose_each(std::vector<Text>& texts, const at::Tensor& logits, const OnToken& on_token) {
  const auto vocabulary = static_cast<std::size_t>(logits.size(1));
  bool any = false;
  for (std::size_t row = 0; row < texts.size(); ++row) {
    Text& text = texts[row];
    if (!text.goes_on) {
      continue;
    }
    // One that changes logits takes a copy of those that others read, too.
    at::Tensor own = logits[logits.size(0) == 1 ? 0 : static_cast<std::int64_t>(row)];
    if (logits.size(0) == 1 && texts.size() > 1) {
      own = own.clone();
    }
    text.choose({own.data_ptr<float>(), vocabulary});
    text.goes_on = !on_token || on_token(text.number, text.chosen.back());
    any = any || text.goes_on;
  }
  return any;
}

// [texts, 1]: the last token of each. One that has ended is read on, and nobody looks at it.
at::Tensor last_tokens(const std::vector<Text>& texts) {
  at::Tensor ids = at::empty({std::ssize(texts), 1}, at::kLong);
  std::transform(texts.begin(), texts.end(), ids.data_ptr<std::int64_t>(),
                 [](const Text& text) { return std::int64_t{text.chosen.back()}; });
  return ids;
}

at::Tensor last_logits(const TransNormer& model, const at::Tensor& hidden,
                       const ForwardContext& context) {
  return model.logits(hidden.select(1, -1), context).to(at::kCPU).contiguous();
}

void decode(TransNormer& model, std::span<const TokenId> inputs, const GenerateOptions& options,
            std::vector<Text>& texts, const OnToken& on_token) {
  ForwardContext context;
  context.compute = options.compute;
  ModelState state = model.make_state(1);
  const auto chunk = static_cast<std::size_t>(std::max<std::int64_t>(options.prompt_chunk, 1));
  const ops::ReusedMemory memory;
  at::Tensor hidden = read_prompt(model, inputs, chunk, context, state);
  if (texts.size() > 1) {
    repeat(state, std::ssize(texts));
  }
  for (std::int64_t i = 0; i < options.max_tokens; ++i) {
    const ops::ReusedMemory::Use use(memory);
    if (i > 0) {
      hidden = read(model, last_tokens(texts), context, state);
    }
    if (!choose_each(texts, last_logits(model, hidden, context), on_token)) {
      break;
    }
  }
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
  const auto on_token = [&options](std::int64_t, TokenId id) {
    return !options.on_token || options.on_token(id);
  };
  return generate_texts(model, inputs, options, 1, on_token).front();
}

std::vector<std::vector<TokenId>> generate_texts(TransNormer& model,
                                                 const std::vector<TokenId>& inputs,
                                                 const GenerateOptions& options, std::int64_t texts,
                                                 const OnToken& on_token) {
  check(model, inputs, options);
  std::vector<Tokens> chosen(static_cast<std::size_t>(texts));
  if (options.max_tokens == 0) {
    return chosen;
  }
  const at::NoGradGuard no_grad;
  // The first input is no part of the text.
  const std::span<const TokenId> prompt = std::span(inputs).subspan(1);
  const std::int64_t together =
      texts > 1 && can_repeat(model.make_state(1)) ? kTextsTogether : std::int64_t{1};
  for (std::int64_t first = 0; first < texts; first += together) {
    if (options.should_stop && options.should_stop()) {
      break;
    }
    std::vector<Text> group;
    for (std::int64_t i = first; i < std::min(first + together, texts); ++i) {
      SamplingOptions sampling = options.sampling;
      sampling.sample += static_cast<std::uint64_t>(i);
      group.emplace_back(sampling, i, prompt);
    }
    decode(model, inputs, options, group, on_token);
    for (Text& text : group) {
      chosen[static_cast<std::size_t>(text.number)] = std::move(text.chosen);
    }
  }
  return chosen;
}

std::string continuation(const Tokenizer& tokenizer, std::span<const TokenId> prompt_ids,
                         std::span<const TokenId> tokens) {
  const std::unique_ptr<StreamDecoder> decoder = tokenizer.stream_decoder();
  for (const TokenId id : prompt_ids) {
    (void)decoder->add(id);
  }
  std::string text;
  for (const TokenId id : tokens) {
    text += decoder->add(id < tokenizer.size() ? id : tokenizer.unknown_id());
  }
  return text + decoder->finish();
}

}  // namespace transnormer
