#include "cli/eval_inputs.h"

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <nlohmann/json.hpp>
#include <utility>

#include "cli/options.h"
#include "config/names.h"
#include "data/text_files.h"
#include "data/text_input.h"
#include "log/console.h"
#include "ops/runtime/device.h"
#include "util/error.h"

namespace transnormer::cli {
namespace {

namespace fs = std::filesystem;
using Names = std::vector<std::string>;

void add_faults(const UserError& error, std::vector<std::string>& faults) {
  faults.insert(faults.end(), error.faults().begin(), error.faults().end());
}

// What is there by its very name is opened when it is read, pipes too.
Names files_of(const std::string& text) {
  std::error_code none;
  if (text == kStandardInput || fs::exists(text, none)) {
    return {text};
  }
  Names files;
  for (const fs::path& file : find_text_files({text}, "--text")) {
    files.push_back(file.string());
  }
  return files;
}

Names expand(const Names& texts) {
  Names files;
  std::vector<std::string> faults;
  for (const std::string& text : texts) {
    try {
      std::ranges::move(files_of(text), std::back_inserter(files));
    } catch (const UserError& error) {
      add_faults(error, faults);
    }
  }
  if (!faults.empty()) {
    throw UserError(std::move(faults));
  }
  if (std::ranges::count(files, kStandardInput) > 1) {
    throw UserError("--text -: standard input can be read only once; name it once");
  }
  return files;
}

// All that cannot be opened are told together.
std::vector<Checkpoint> open_all(const Names& paths, Weights weights) {
  std::vector<Checkpoint> checkpoints;
  std::vector<std::string> faults;
  for (const std::string& path : paths) {
    try {
      checkpoints.push_back(Checkpoint::open(path));
      checkpoints.back().require(weights);
    } catch (const UserError& error) {
      add_faults(error, faults);
    }
  }
  if (!faults.empty()) {
    throw UserError(std::move(faults));
  }
  return checkpoints;
}

// Line ends are coded as in training where the config of the text says nothing of them. Where it
// says otherwise the model is asked for what it did not learn.
void keep_line_end(const Checkpoint& checkpoint, LoadedConfig& loaded) {
  const LineEnd trained = checkpoint.config().data.line_end;
  LineEnd& line_end = loaded.config.data.line_end;
  const std::string& origin = loaded.origins.at("data.line_end");
  if (origin == "default" || origin == "tokenizer.type") {
    line_end = trained;
  } else if (line_end != trained) {
    log::warn(std::string("data.line_end is \"") + name_of<LineEnd>(kLineEndNames, line_end) +
              "\" (" + origin + "), but " + checkpoint.path().string() + " was trained with \"" +
              name_of<LineEnd>(kLineEndNames, trained) +
              "\": its figures are of a coding that it did not learn; leave the key out to score "
              "it as it was trained");
  }
}

// The config whose data is read: --data's, else the checkpoint's, which --set may change but for
// what made the weights.
LoadedConfig config_of(const EvalOptions& options, const Checkpoint& checkpoint) {
  const Config& trained = checkpoint.config();
  objective(trained.train.objective).require_model(trained.model);
  if (!options.data.empty()) {
    LoadedConfig loaded = load_config(options.data, options.sets);
    keep_line_end(checkpoint, loaded);
    return loaded;
  }
  LoadedConfig loaded =
      parse_config(config_to_json(trained), checkpoint.path() / "config.json", options.sets);
  for (const ConfigChange& change : config_changes(trained, loaded.config)) {
    if (change.key.starts_with("model.") || change.key.starts_with("tokenizer.")) {
      throw UserError("--set " + change.key +
                      ": the checkpoint's model and tokenizer are fixed; leave it out");
    }
  }
  return loaded;
}

void tell(const LoadedConfig& loaded, const EvalOptions& options) {
  if (!options.data.empty()) {
    (void)reported(loaded, ConfigReader::eval);
    return;
  }
  for (const std::string& unread : unread_sets(loaded, ConfigReader::eval)) {
    log::warn(unread);
  }
}

bool is_set(const LoadedConfig& loaded, const char* key) {
  const auto origin = loaded.origins.find(key);
  return origin != loaded.origins.end() && origin->second == "--set";
}

// Else the figures would be a mixture.
void require_same_work(const dist::World& world, const Scoring& scoring, Weights weights) {
  if (world.size() == 1) {
    return;
  }
  const EvaluationRequest& request = scoring.request;
  const std::string work = manifest_to_json(scoring.subject.checkpoint.manifest()) +
                           scoring.evaluator->text_digest() + config_to_json(request.config) +
                           std::to_string(request.context_window.value_or(-1)) + ' ' +
                           c10::toString(request.compute) + (weights == Weights::ema ? " ema" : "");
  world.require_same(work, [](const std::string&, const std::string&) {
    return "evaluates another checkpoint or text than rank 0, or otherwise; all ranks need the "
           "same files and options";
  });
}

// The window is the one the model was trained with, whatever config names the text, unless --set
// says otherwise.
EvaluationRequest request_of(const Subject& subject, const std::string& text, EvalInputs& inputs,
                             const dist::World& world, const EvalOptions& options) {
  return {.trained = subject.checkpoint.config(),
          .config = subject.loaded.config,
          .tokenizer = subject.checkpoint.tokenizer(),
          .token_counts = subject.checkpoint.unigram_counts(),
          .split = options.split,
          .text = text,
          .window_is_set = is_set(subject.loaded, "data.tokens_per_sample"),
          .context_window = options.context_window,
          .per_item_file = world.is_first() ? options.per_token : "",
          .compute = ops::scalar_type(options.precision.value_or(Precision::fp32)),
          .sequence = world.sequence(),
          .batches = world.samples(),
          .texts = &inputs.shared_texts};
}

void make_evaluators(EvalInputs& inputs) {
  std::vector<std::string> faults;
  for (Scoring& scoring : inputs.scorings) {
    const Config& trained = scoring.subject.checkpoint.config();
    try {
      scoring.evaluator = objective(trained.train.objective).make_evaluator(scoring.request);
    } catch (const UserError& error) {
      add_faults(error, faults);
    }
  }
  if (!faults.empty()) {
    std::vector<std::string> once;  // a text may fail for each checkpoint
    std::ranges::copy_if(faults, std::back_inserter(once), [&once](const std::string& fault) {
      return std::ranges::find(once, fault) == once.end();
    });
    throw UserError(std::move(once));
  }
}

}  // namespace

std::unique_ptr<EvalInputs> open_inputs(dist::World& world, const EvalOptions& options) {
  auto inputs = std::make_unique<EvalInputs>();
  std::vector<Checkpoint> opened;
  const std::string decided = world.word_of_first([&] {
    inputs->texts = expand(options.texts);
    opened = open_all(options.checkpoints, options.weights());
    Names paths;
    for (const Checkpoint& checkpoint : opened) {
      paths.push_back(checkpoint.path().string());
    }
    return nlohmann::json{{"texts", inputs->texts}, {"checkpoints", paths}}.dump(
        -1, ' ', false, nlohmann::json::error_handler_t::replace);
  });
  if (opened.empty()) {
    const auto json = nlohmann::json::parse(decided);
    inputs->texts = json.at("texts").get<Names>();
    opened = open_all(json.at("checkpoints").get<Names>(), options.weights());
  }
  for (std::size_t i = 0; i < opened.size(); ++i) {
    LoadedConfig loaded = config_of(options, opened[i]);
    if (i == 0) {  // of the same --data and --set for all
      tell(loaded, options);
    }
    inputs->subjects.push_back({options.checkpoints[i], std::move(opened[i]), std::move(loaded)});
  }
  return inputs;
}

void prepare_scorings(EvalInputs& inputs, dist::World& world, const EvalOptions& options) {
  const Names& texts = inputs.texts;
  for (const Subject& subject : inputs.subjects) {
    for (const std::string& text : texts.empty() ? Names{""} : texts) {
      inputs.scorings.push_back({subject, text, request_of(subject, text, inputs, world, options)});
    }
  }
  // The first one prepares the data; then the others find it.
  (void)world.word_of_first([&] {
    make_evaluators(inputs);
    return "ready";
  });
  if (!world.is_first()) {
    make_evaluators(inputs);
  }
  for (const Scoring& scoring : inputs.scorings) {
    require_same_work(world, scoring, options.weights());
  }
}

}  // namespace transnormer::cli
