// generate: continues a prompt, printing as it goes.
#include <iostream>
#include <memory>
#include <string>

#include "checkpoint/checkpoint.h"
#include "cli/commands.h"
#include "cli/options.h"
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
  bool stop_at_eos = false;
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

ExitStatus run_generate(const GenerateRequest& request) {
  const at::Device device = ops::select_device(request.device.value_or(DeviceChoice::automatic));
  const std::string prompt =
      request.prompt_file.empty() ? request.prompt : read_text(request.prompt_file);
  const Checkpoint checkpoint = Checkpoint::open(request.checkpoint);
  const TrainConfig& train = checkpoint.config().train;
  if (!objective(train.objective).continues_text()) {
    throw UserError(checkpoint.path().string() + ": learned \"" + train.objective +
                    "\" (train.objective), which does not continue text");
  }
  ops::configure_threads(useful_threads(train.threads), train.deterministic);
  const auto tokenizer = checkpoint.tokenizer();
  const auto model = checkpoint.load_model(device, request.ema ? Weights::ema : Weights::trained);
  require_finite_weights(*model, checkpoint.path().string());

  const std::vector<TokenId> prompt_ids =
      encode_prompt(prompt, *tokenizer, checkpoint.config().data);
  std::vector<TokenId> inputs{tokenizer->first_input()};
  inputs.insert(inputs.end(), prompt_ids.begin(), prompt_ids.end());

  GenerateOptions options = request.generate;
  const Precision precision = request.precision.value_or(Precision::fp32);
  options.compute = ops::scalar_type(precision);
  check(*model, inputs, options);
  if (const auto warning = slow_precision(precision, device)) {
    log::warn(*warning);
  }
  install_signal_handlers();
  Printer printer(*tokenizer, prompt, prompt_ids);
  options.on_token = [&](TokenId id) {
    if (request.stop_at_eos && tokenizer->end_id() == id) {
      return false;
    }
    printer.add(id);
    return std::cout && !stop_requested().has_value();
  };
  (void)generate(*model, inputs, options);
  printer.finish();
  return stop_requested().value_or(ExitStatus::done);
}

}  // namespace

void add_generate(CLI::App& app, Run& run) {
  CLI::App* command = app.add_subcommand("generate", "Continue a text with a checkpoint's model");
  auto request = std::make_shared<GenerateRequest>();
  GenerateOptions& generate = request->generate;
  add_path(*command, "CHECKPOINT", request->checkpoint, "A checkpoint, or a run directory")
      ->required();
  auto* prompt = command->add_option("--prompt", request->prompt, "The text to continue");
  add_path(*command, "--prompt-file", request->prompt_file, "A file with the text to continue")
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
  add_integer(*command, "--seed", generate.sampling.seed, {}, "The same seed gives the same text")
      ->default_str("1");
  command->add_flag("--stop-at-eos", request->stop_at_eos, "Stop at the first end token");
  command->add_flag(
      "--ema", request->ema,
      "Continue with the running mean of the weights (optimizer.ema) instead of them");
  add_device(*command, request->device, "auto");
  add_precision(*command, request->precision, "fp32");
  command->callback([request, &run] { run = [request] { return run_generate(*request); }; });
}

}  // namespace transnormer::cli
