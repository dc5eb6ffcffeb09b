#include "train/prompts.h"

#include <algorithm>
#include <exception>
#include <optional>

#include "generate/generate.h"
#include "ops/runtime/device.h"
#include "task/objective.h"
#include "tokenizer/utf8.h"
#include "util/error.h"
#include "util/units.h"

namespace transnormer {
namespace {

constexpr std::size_t kLineBytes = 64;  // of a sample on the console
constexpr const char* kKey = "validation.prompts";

struct Prompt {
  std::vector<TokenId> ids;
  std::vector<TokenId> inputs;  // the first input, then those
};

Prompt encode(const TrainingRun& run, const std::string& text) {
  const Tokenizer& tokenizer = *run.task->tokenizer();
  Prompt prompt{.ids = encode_prompt(text, tokenizer, run.config.data),
                .inputs = {tokenizer.first_input()}};
  prompt.inputs.insert(prompt.inputs.end(), prompt.ids.begin(), prompt.ids.end());
  return prompt;
}

// The last new token is never read.
std::int64_t new_tokens(const TrainingRun& run, const Prompt& prompt) {
  const std::optional<std::int64_t> most = run.model->most_positions();
  return most ? std::min(kPromptTokens, *most - std::ssize(prompt.inputs) + 1) : kPromptTokens;
}

// A block of its own, in which nothing has a meaning but line ends.
std::string as_markdown(const std::string& text) {
  std::string block = "    ";
  for (const char c : text) {
    block += c;
    block += c == '\n' ? "    " : "";
  }
  return block;
}

void tell(const TrainingRun& run, std::size_t number, const std::string& text, Events& events) {
  const std::string& prompt = run.config.validation.prompts[number];
  const std::string name = std::to_string(number + 1);
  events.emit(log::NoteEvent{.step = run.state.step,
                             .name = "sample",
                             .message = "step " + format_count(run.state.step) + "  sample " +
                                        name + ": " + in_one_line(prompt + text, kLineBytes),
                             .texts = {{"prompt", prompt}, {"text", text}}});
  events.emit(log::TextEvent{.step = run.state.step,
                             .name = "samples/" + name,
                             .markdown = as_markdown(well_formed(prompt + text))});
}

}  // namespace

std::vector<std::string> check_prompts(const TrainingRun& run) {
  const std::vector<std::string>& prompts = run.config.validation.prompts;
  if (prompts.empty()) {
    return {};
  }
  if (!objective(run.config.train.objective).continues_text()) {
    throw UserError(std::string(kKey) + ": train.objective \"" + run.config.train.objective +
                    "\" does not continue text; leave them out");
  }
  try {
    (void)run.model->make_state(1);
  } catch (const UserError& error) {
    throw UserError(std::string(kKey) + ": " + error.what() + "; leave them out");
  }
  for (const std::string& text : prompts) {
    const Prompt prompt = encode(run, text);
    if (new_tokens(run, prompt) < 1) {
      throw UserError(std::string(kKey) + ": \"" + in_one_line(text, kLineBytes) + "\" has " +
                      format_count(std::ssize(prompt.ids)) +
                      " tokens, which leaves the model no position for another; shorten it");
    }
  }
  if (run.config.validation.every == 0 || run.task->validation_digest().empty()) {
    return {std::string(kKey) + ": nothing is validated, so they are never continued"};
  }
  return {};
}

std::string continue_prompt(const TrainingRun& run, std::size_t number,
                            const std::function<bool()>& should_stop) {
  constexpr int kNumberBits = 20;
  const Prompt prompt = encode(run, run.config.validation.prompts.at(number));
  bool stopped = false;
  GenerateOptions options;
  options.max_tokens = new_tokens(run, prompt);
  options.sampling = {
      .temperature = kPromptTemperature,
      .top_k = kPromptTopK,
      .seed = static_cast<std::uint64_t>(run.config.train.seed),
      .sample = (static_cast<std::uint64_t>(run.state.step) << kNumberBits) + number};
  options.compute = ops::scalar_type(run.config.train.precision);
  options.on_token = [&](TokenId) {
    stopped = should_stop && should_stop();
    return !stopped;
  };
  const std::vector<TokenId> tokens = generate(*run.model, prompt.inputs, options);
  return stopped ? "" : continuation(*run.task->tokenizer(), prompt.ids, tokens);
}

void continue_prompts(const TrainingRun& run, Events& events,
                      const std::function<bool()>& should_stop) {
  const std::size_t count = run.config.validation.prompts.size();
  for (std::size_t number = 0; number < count && !should_stop(); ++number) {
    try {
      const std::string text = continue_prompt(run, number, should_stop);
      if (!should_stop()) {
        tell(run, number, text, events);
      }
    } catch (const std::exception& error) {  // a training does not end for a sample
      events.note(run.state.step, "sample_failed",
                  "step " + format_count(run.state.step) + "  sample " +
                      std::to_string(number + 1) + ": " + first_line(error.what()),
                  log::Level::warning);
    }
  }
}

std::string in_one_line(const std::string& text, std::size_t most) {
  constexpr std::string_view kCut = " ..";
  std::string line = well_formed(text);
  std::ranges::replace_if(
      line, [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7F; }, ' ');
  if (line.size() <= most) {
    return line;
  }
  std::size_t end = most - kCut.size();
  while (end > 0 && continues_character(line[end])) {
    --end;
  }
  return line.substr(0, end) + std::string(kCut);
}

}  // namespace transnormer
