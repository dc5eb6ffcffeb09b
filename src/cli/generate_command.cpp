// generate: continues a prompt, printing as it goes.
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "checkpoint/checkpoint.h"
#include "cli/commands.h"
#include "cli/options.h"
#include "config/names.h"
#include "data/text_input.h"
#include "generate/generate.h"
#include "log/console.h"
#include "ops/runtime/device.h"
#include "task/objective.h"
#include "util/processors.h"
#include "util/signal.h"

namespace transnormer::cli {
namespace {

struct GenerateRequest {
  std::string checkpoint;
  std::string prompt;
  std::string prompt_file;
  GenerateOptions generate;
  std::int64_t samples = 1;
  bool stop_at_eos = false;
  bool json = false;
  bool no_prompt = false;
  bool ema = false;
  std::optional<DeviceChoice> device;
  std::optional<Precision> precision;
};

// Prints the prompt as it was given, then what each token adds to it. Rows of the embedding that
// the tokenizer has no token for show as its unknown token.
class Printer {
 public:
  Printer(const Tokenizer& tokenizer, const std::string& prompt,
          const std::vector<TokenId>& prompt_ids)
      : tokenizer_(tokenizer), decoder_(tokenizer.stream_decoder()) {
    for (const TokenId id : prompt_ids) {
      (void)decoder_->add(id);
    }
    std::cout << prompt << std::flush;
  }
  void add(TokenId id) {
    std::cout << decoder_->add(id < tokenizer_.size() ? id : tokenizer_.unknown_id()) << std::flush;
  }
  void finish() { std::cout << decoder_->finish() << std::endl; }

 private:
  const Tokenizer& tokenizer_;
  std::unique_ptr<StreamDecoder> decoder_;
};

// What is continued, by what.
struct Subject {
  Checkpoint checkpoint;
  std::shared_ptr<TransNormer> model;
  std::shared_ptr<const Tokenizer> tokenizer;
  std::string prompt;
  std::vector<TokenId> prompt_ids;
  std::vector<TokenId> inputs;  // the first input, then those
};

struct Sample {
  std::vector<TokenId> ids;  // without the end token that it stopped at
  bool stopped = false;      // at an end token
};

std::string read_prompt(const GenerateRequest& request) {
  return request.prompt_file.empty() ? request.prompt : read_text(request.prompt_file);
}

Subject open_subject(const GenerateRequest& request, at::Device device) {
  std::string prompt = read_prompt(request);
  Checkpoint checkpoint = Checkpoint::open(request.checkpoint);
  const TrainConfig& train = checkpoint.config().train;
  if (!objective(train.objective).continues_text()) {
    throw UserError(checkpoint.path().string() + ": learned \"" + train.objective +
                    "\" (train.objective), which does not continue text");
  }
  ops::configure_threads(useful_threads(train.threads), train.deterministic);
  auto tokenizer = checkpoint.tokenizer();
  auto model = checkpoint.load_model(device, request.ema ? Weights::ema : Weights::trained);
  require_finite_weights(*model, checkpoint.path().string());
  std::vector<TokenId> prompt_ids = encode_prompt(prompt, *tokenizer, checkpoint.config().data);
  std::vector<TokenId> inputs{tokenizer->first_input()};
  inputs.insert(inputs.end(), prompt_ids.begin(), prompt_ids.end());
  return {std::move(checkpoint), std::move(model),      std::move(tokenizer),
          std::move(prompt),     std::move(prompt_ids), std::move(inputs)};
}

void warn_of_unlearned_end(const Subject& subject, const GenerateRequest& request) {
  const LineEnd line_end = subject.checkpoint.config().data.line_end;
  if (request.stop_at_eos && line_end != LineEnd::eos) {
    log::warn(std::string("--stop-at-eos: the model was trained without end tokens "
                          "(data.line_end \"") +
              name_of<LineEnd>(kLineEndNames, line_end) + "\"), so texts go on to --max-tokens");
  }
}

// One text, printed as it is made.
void print_as_it_comes(const Subject& subject, const GenerateRequest& request) {
  Printer printer(*subject.tokenizer, request.no_prompt ? "" : subject.prompt, subject.prompt_ids);
  GenerateOptions options = request.generate;
  options.on_token = [&](TokenId id) {
    if (request.stop_at_eos && subject.tokenizer->end_id() == id) {
      return false;
    }
    printer.add(id);
    return std::cout && !stop_requested().has_value();
  };
  (void)generate(*subject.model, subject.inputs, options);
  printer.finish();
}

std::vector<Sample> make_samples(const Subject& subject, const GenerateRequest& request) {
  std::vector<Sample> samples(static_cast<std::size_t>(request.samples));
  GenerateOptions options = request.generate;
  options.should_stop = [] { return stop_requested().has_value(); };
  (void)generate_texts(*subject.model, subject.inputs, options, request.samples,
                       [&](std::int64_t which, TokenId id) {
                         Sample& sample = samples[static_cast<std::size_t>(which)];
                         if (request.stop_at_eos && subject.tokenizer->end_id() == id) {
                           sample.stopped = true;
                           return false;
                         }
                         sample.ids.push_back(id);
                         return !stop_requested().has_value();
                       });
  return samples;
}

std::string text_of(const Subject& subject, const Sample& sample) {
  return continuation(*subject.tokenizer, subject.prompt_ids, sample.ids);
}

void print_samples(const Subject& subject, const GenerateRequest& request,
                   const std::vector<Sample>& samples) {
  for (std::size_t i = 0; i < samples.size(); ++i) {
    if (stop_requested() && samples[i].ids.empty() && !samples[i].stopped) {
      break;  // it did not begin, nor did those behind it
    }
    std::cout << (i == 0 ? "" : "\n") << "--- sample " << i + 1 << " of " << samples.size()
              << (samples[i].stopped ? ", ended" : "") << " ---\n"
              << (request.no_prompt ? "" : subject.prompt) << text_of(subject, samples[i]) << '\n';
  }
  std::cout << std::flush;
}

void print_json(const Subject& subject, const GenerateRequest& request,
                const std::vector<Sample>& samples) {
  using Json = nlohmann::ordered_json;
  const SamplingOptions& sampling = request.generate.sampling;
  Json answer = {{"checkpoint", subject.checkpoint.path().string()},
                 {"prompt", subject.prompt},
                 {"samples", Json::array()},
                 {"max_tokens", request.generate.max_tokens},
                 {"seed", sampling.seed},
                 {"temperature", sampling.temperature},
                 {"top_k", sampling.top_k},
                 {"top_p", sampling.top_p},
                 {"repetition_penalty", sampling.repetition_penalty}};
  for (const Sample& sample : samples) {
    answer["samples"].push_back({{"text", text_of(subject, sample)},
                                 {"tokens", sample.ids.size()},
                                 {"ids", sample.ids},
                                 {"stopped", sample.stopped}});
  }
  // A prompt may hold any bytes.
  std::cout << answer.dump(2, ' ', false, Json::error_handler_t::replace) << std::endl;
}

ExitStatus run_generate(GenerateRequest request) {
  const at::Device device = ops::select_device(request.device.value_or(DeviceChoice::automatic));
  const Subject subject = open_subject(request, device);
  const Precision precision = request.precision.value_or(Precision::fp32);
  request.generate.compute = ops::scalar_type(precision);
  check(*subject.model, subject.inputs, request.generate);
  if (const auto warning = slow_precision(precision, device)) {
    log::warn(*warning);
  }
  warn_of_unlearned_end(subject, request);
  install_signal_handlers();
  if (request.samples == 1 && !request.json) {
    print_as_it_comes(subject, request);
    return stop_requested().value_or(ExitStatus::done);
  }
  const std::vector<Sample> samples = make_samples(subject, request);
  const std::optional<ExitStatus> stop = stop_requested();
  if (!request.json) {
    print_samples(subject, request, samples);  // as far as they came
  } else if (!stop) {
    print_json(subject, request, samples);
  }
  return stop.value_or(ExitStatus::done);
}

}  // namespace

void add_generate(CLI::App& app, Run& run) {
  CLI::App* command = app.add_subcommand("generate", "Continue a text with a checkpoint's model");
  auto request = std::make_shared<GenerateRequest>();
  GenerateOptions& generate = request->generate;
  add_path(*command, "CHECKPOINT", request->checkpoint, "A checkpoint, or a run directory")
      ->required();
  auto* prompt = command->add_option("--prompt", request->prompt, "The text to continue");
  add_path(*command, "--prompt-file", request->prompt_file,
           "A file with the text to continue; -: standard input")
      ->excludes(prompt);
  constexpr std::int64_t kMostTokens = 1'000'000'000'000'000;
  add_integer(*command, "--max-tokens", generate.max_tokens, {0, kMostTokens},
              "How many new tokens")
      ->default_str(std::to_string(generate.max_tokens));
  add_number(*command, "--temperature", generate.sampling.temperature, {},
             "Divides the logits; 0 takes the most likely token")
      ->default_str("1");
  add_integer(*command, "--top-k", generate.sampling.top_k, {},
              "Only the k most likely tokens; 0: all")
      ->default_str("0");
  add_number(*command, "--top-p", generate.sampling.top_p, {.min = 0, .max = 1, .min_open = true},
             "Only the fewest most likely tokens whose probabilities reach p")
      ->default_str("1");
  add_number(*command, "--repetition-penalty", generate.sampling.repetition_penalty,
             {.min = 0, .max = kMostRepetitionPenalty, .min_open = true},
             "Divides the logits of tokens that prompt and text hold already, where positive, and "
             "multiplies negative ones; 1: off")
      ->default_str("1");
  add_integer(*command, "--seed", generate.sampling.seed, {}, "The same seed gives the same text")
      ->default_str("1");
  constexpr std::int64_t kMostSamples = 1'000'000;
  add_integer(*command, "--samples", request->samples, {1, kMostSamples},
              "So many continuations; each is a function of seed and its number")
      ->default_str("1");
  command->add_flag("--stop-at-eos", request->stop_at_eos, "Stop at the first end token");
  command->add_flag("--no-prompt", request->no_prompt, "Print the continuation only");
  command->add_flag("--json", request->json, "Print one JSON object");
  command->add_flag(
      "--ema", request->ema,
      "Continue with the running mean of the weights (optimizer.ema) instead of them");
  add_device(*command, request->device, "auto");
  add_precision(*command, request->precision, "fp32");
  command->callback([request, &run] { run = [request] { return run_generate(*request); }; });
}

}  // namespace transnormer::cli
