// eval: perplexity of a checkpoint on held-out text.
#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <iostream>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "checkpoint/checkpoint.h"
#include "cli/commands.h"
#include "cli/options.h"
#include "config/check.h"
#include "config/load.h"
#include "data/prepare.h"
#include "eval/evaluate.h"
#include "log/console.h"
#include "log/progress.h"
#include "ops/runtime/device.h"
#include "util/file.h"
#include "util/processors.h"
#include "util/signal.h"
#include "util/units.h"

namespace transnormer::cli {
namespace {

struct EvalOptions {
  std::string checkpoint;
  std::string data;
  std::string text;
  Split split = Split::test;
  std::optional<std::int64_t> context_window;
  std::string per_token;
  bool json = false;
  std::vector<std::string> sets;
  std::optional<DeviceChoice> device;
  std::optional<Precision> precision;
};

constexpr std::array kSplitNames{Named{Split::train, "train"}, Named{Split::valid, "valid"},
                                 Named{Split::test, "test"}};

// What is scored, and how.
struct EvalPlan {
  Config config;  // whose data section is read
  std::int64_t window = 0;
  std::int64_t context_window = 0;
};

// The window is the one the model was trained with, whatever config names the text, unless --set
// says otherwise.
EvalPlan make_plan(const EvalOptions& options, const Checkpoint& checkpoint) {
  const Config& trained = checkpoint.config();
  require_objective(trained.model);
  const LoadedConfig loaded =
      options.data.empty()
          ? parse_config(config_to_json(trained), checkpoint.path() / "config.json", options.sets)
          : reported(load_config(options.data, options.sets));
  if (options.data.empty()) {
    for (const ConfigChange& change : config_changes(trained, loaded.config)) {
      if (change.key.starts_with("model.") || change.key.starts_with("tokenizer.")) {
        throw UserError("--set " + change.key +
                        ": the checkpoint's model and tokenizer are fixed; " + "leave it out");
      }
    }
  }
  EvalPlan plan{loaded.config, trained.data.tokens_per_sample, 0};
  const auto origin = loaded.origins.find("data.tokens_per_sample");
  if (origin != loaded.origins.end() && origin->second == "--set") {
    plan.window = loaded.config.data.tokens_per_sample;
  }
  plan.context_window = options.context_window.value_or(loaded.config.validation.context_window);
  if (plan.context_window < 0 || plan.context_window >= plan.window) {
    throw UserError("the context window is " + std::to_string(plan.context_window) +
                    "; it must be at least 0 and below the window of " +
                    std::to_string(plan.window) + " tokens (data.tokens_per_sample)");
  }
  return plan;
}

PreparedSplit read_text(const EvalOptions& options, const EvalPlan& plan,
                        const std::shared_ptr<const Tokenizer>& tokenizer) {
  if (!options.text.empty()) {
    return tokenize_file(options.text, *tokenizer, plan.config.data);
  }
  return prepare_data(plan.config, tokenizer, {.wanted = {options.split}}).at(options.split);
}

// Lines {"index", "id", "nll"} in stream order. The file appears when all of them are there.
class PerTokenFile {
 public:
  PerTokenFile(const std::string& path, const TokenStream& stream)
      : writer_(path), stream_(stream) {}

  void write(std::int64_t first, std::span<const float> losses) {
    std::vector<std::int64_t> ids(losses.size());
    stream_.copy(first, std::ssize(ids), ids.data());
    std::string lines;
    for (std::size_t i = 0; i < losses.size(); ++i) {
      nlohmann::ordered_json line;
      line["index"] = first + static_cast<std::int64_t>(i);
      line["id"] = ids[i];
      line["nll"] = losses[i];
      lines += line.dump() + '\n';
    }
    writer_.write(lines.data(), lines.size());
  }
  void finish() { writer_.finish(); }

 private:
  FileWriter writer_;
  const TokenStream& stream_;
};

struct Figures {
  EvaluateResult result;
  SplitCounts counts;
  double unigram_perplexity = 0;
  bool line_ends = false;  // coded, one a line
  std::int64_t window = 0;
  std::int64_t context_window = 0;

  [[nodiscard]] double word_perplexity() const {
    const std::int64_t units = counts.words + (line_ends ? counts.lines : 0);
    return std::exp(result.nll_sum / static_cast<double>(units));
  }
  // A code length of the bytes only where the tokens tell what they were.
  [[nodiscard]] double bits_per_byte() const {
    return counts.unreadable == Unreadable::no
               ? result.nll_sum / std::log(2.0) / static_cast<double>(counts.bytes)
               : std::numeric_limits<double>::quiet_NaN();
  }
  [[nodiscard]] std::string protocol() const {
    return "windows of " + std::to_string(window) + " tokens that advance by " +
           std::to_string(window - context_window) +
           ", positions start anew in each; every token is scored once, " +
           (line_ends ? "line ends too" : "line ends are not coded");
  }
};

void print_json(const Figures& figures) {
  const EvaluateResult& result = figures.result;
  nlohmann::ordered_json answer;
  answer["tokens"] = result.tokens;
  answer["nll"] = result.nll();
  answer["nll_stderr"] = result.nll_stderr();
  answer["token_perplexity"] = std::exp(result.nll());
  answer["words"] = figures.counts.words;
  answer["word_perplexity"] = figures.word_perplexity();
  answer["bytes"] = figures.counts.bytes;
  answer["bits_per_byte"] = figures.bits_per_byte();
  answer["unknown"] = figures.counts.unknown;
  answer["unigram_perplexity"] = figures.unigram_perplexity;
  answer["window"] = figures.window;
  answer["context_window"] = figures.context_window;
  answer["protocol"] = figures.protocol();
  std::cout << answer.dump(2) << '\n';
}

void print_table(const Figures& figures) {
  const EvaluateResult& result = figures.result;
  const SplitCounts& counts = figures.counts;
  const auto row = [](const std::string& name, const std::string& value,
                      const std::string& meaning) {
    std::cout << name << std::string(22 - name.size(), ' ')
              << std::string(14 - std::min<std::size_t>(value.size(), 14), ' ') << value << "  "
              << meaning << '\n';
  };
  row("token perplexity", format_fixed(std::exp(result.nll()), 3), "exp of the loss a token");
  row("loss", format_fixed(result.nll(), 4),
      "nats a token, standard error " + format_fixed(result.nll_stderr(), 4));
  row("word perplexity", format_fixed(figures.word_perplexity(), 3),
      "over " + format_count(counts.words) + " words" +
          (figures.line_ends ? " and " + format_count(counts.lines) + " line ends" : ""));
  if (counts.unreadable == Unreadable::no) {
    row("bits a byte", format_fixed(figures.bits_per_byte(), 4),
        "over " + format_count(counts.bytes) + " bytes");
  } else {
    row("bits a byte", "-", std::string("not defined: ") + describe(counts.unreadable));
  }
  row("unigram perplexity", format_fixed(figures.unigram_perplexity, 3),
      "what training counts alone reach on the same tokens");
  row("tokens", format_count(result.tokens), format_count(counts.unknown) + " of them unknown");
  std::cout << "\nProtocol: " << figures.protocol() << ".\n";
}

std::int64_t windows_a_pass(const Config& config, std::int64_t window, at::Device device) {
  if (config.validation.batch_size > 0) {
    return config.validation.batch_size;
  }
  const std::int64_t tokens = device.is_cuda() ? 65536 : 8192;
  return std::max<std::int64_t>(tokens / window, 1);
}

ExitStatus run_eval(const EvalOptions& options) {
  install_signal_handlers();
  require_replaceable("--per-token", options.per_token, "losses of tokens", "{\"index\":");
  const at::Device device = ops::select_device(options.device.value_or(DeviceChoice::automatic));
  const Checkpoint checkpoint = Checkpoint::open(options.checkpoint);
  const EvalPlan plan = make_plan(options, checkpoint);
  const TrainConfig& train = plan.config.train;
  ops::configure_threads(useful_threads(train.threads), train.deterministic);
  const PreparedSplit text = read_text(options, plan, checkpoint.tokenizer());
  if (text.stream.size() == 0) {
    throw UserError((options.text.empty() ? std::string("the split ") + to_string(options.split)
                                          : options.text) +
                    " holds no tokens to score");
  }
  const auto model = checkpoint.load_model(device);
  require_finite_weights(*model, checkpoint.path().string());

  EvaluateOptions how;
  how.window = plan.window;
  how.context_window = plan.context_window;
  how.batch_size = windows_a_pass(plan.config, plan.window, device);
  const Precision precision = options.precision.value_or(Precision::fp32);
  how.compute = ops::scalar_type(precision);
  how.first_input = checkpoint.tokenizer()->first_input();
  how.should_stop = [] { return stop_requested().has_value(); };
  if (const auto warning = slow_precision(precision, device)) {
    log::warn(*warning);
  }
  log::ProgressBar bar("eval", text.stream.size());
  how.on_progress = [&bar](std::int64_t done) { bar.update(done); };
  std::unique_ptr<PerTokenFile> per_token;
  if (!options.per_token.empty()) {
    per_token = std::make_unique<PerTokenFile>(options.per_token, text.stream);
    how.on_tokens = [&per_token](std::int64_t first, std::span<const float> losses) {
      per_token->write(first, losses);
    };
  }
  Figures figures;
  figures.result = evaluate(*model, text.stream, how);
  bar.finish();
  if (!figures.result.complete) {
    return *stop_requested();
  }
  if (per_token) {
    per_token->finish();
  }
  figures.counts = text.counts;
  figures.unigram_perplexity = std::exp(unigram_nll(text.stream, checkpoint.unigram_counts()));
  figures.line_ends = plan.config.data.line_end == LineEnd::eos;
  figures.window = plan.window;
  figures.context_window = plan.context_window;
  (options.json ? print_json : print_table)(figures);
  return ExitStatus::done;
}

}  // namespace

void add_eval(CLI::App& app, Run& run) {
  CLI::App* command = app.add_subcommand("eval", "Perplexity of a checkpoint on held-out text");
  auto options = std::make_shared<EvalOptions>();
  add_path(*command, "CHECKPOINT", options->checkpoint, "A checkpoint, or a run directory")
      ->required();
  auto* data = add_path(*command, "--data", options->data,
                        "Score a split of this config (the checkpoint's unless told)");
  auto* text = add_path(*command, "--text", options->text, "Score this text file");
  auto* split = add_choice<Split>(*command, "--split", kSplitNames, options->split, "Which split");
  data->excludes(text);
  split->excludes(text)->default_str("test");
  add_integer(*command, "--context-window", options->context_window, {},
              "Inputs of a window that only serve as context "
              "(validation.context_window unless told)");
  add_path(*command, "--per-token", options->per_token,
           "Write each token's loss to this file, as JSON lines");
  command->add_flag("--json", options->json, "Print one JSON object");
  add_sets(*command, options->sets);
  add_device(*command, options->device, "auto");
  add_precision(*command, options->precision, "fp32");
  command->callback([options, &run] { run = [options] { return run_eval(*options); }; });
}

}  // namespace transnormer::cli
