// analyze: the paper's measurements of a model's attentions.
#include <algorithm>
#include <array>
#include <filesystem>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "analyze/measurement.h"
#include "analyze/subject.h"
#include "checkpoint/checkpoint.h"
#include "cli/commands.h"
#include "cli/options.h"
#include "config/load.h"
#include "log/console.h"
#include "ops/runtime/device.h"
#include "util/file.h"
#include "util/units.h"

namespace transnormer::cli {
namespace {

struct AnalyzeRequest {
  std::string path;
  std::vector<std::string> sets;
  std::optional<Measurement> what;
  std::optional<Split> split;
  std::int64_t samples = 8;
  std::string layers = "all";
  std::string heads = "all";
  std::string out;
  bool json = false;
  std::optional<DeviceChoice> device;
};

constexpr std::array kMeasurementNames{
    Named{Measurement::dilution, "dilution"}, Named{Measurement::maps, "maps"},
    Named{Measurement::gradients, "gradients"}, Named{Measurement::scale, "scale"},
    Named{Measurement::rank, "rank"}};

constexpr std::array kAnalyzedSplits{Named{Split::train, "train"}, Named{Split::valid, "valid"},
                                     Named{Split::test, "test"}};

// "0,3" -> those, ascending; "all" -> nothing.
std::vector<std::int64_t> read_list(const std::string& option, const std::string& text,
                                    std::int64_t count) {
  std::vector<std::int64_t> numbers;
  if (text == "all") {
    return numbers;
  }
  std::size_t begin = 0;
  while (begin <= text.size()) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    const std::optional<std::int64_t> number =
        parse_integer(std::string_view(text).substr(begin, end - begin));
    if (!number || *number < 0 || *number >= count) {
      throw UserError(option + " is \"" + text + "\"; expected \"all\", or numbers from 0 to " +
                      std::to_string(count - 1) + " with commas between them");
    }
    numbers.push_back(*number);
    begin = end + 1;
  }
  std::sort(numbers.begin(), numbers.end());
  numbers.erase(std::unique(numbers.begin(), numbers.end()), numbers.end());
  return numbers;
}

Selection selection_of(const AnalyzeRequest& request, const ModelConfig& model) {
  Selection selection{.layers = read_list("--layers", request.layers, model.layers),
                      .heads = read_list("--heads", request.heads, model.heads)};
  if (selection.layers.empty()) {
    for (std::int64_t layer = 0; layer < model.layers; ++layer) {
      selection.layers.push_back(layer);
    }
  }
  return selection;
}

// Before anything is measured.
void require_replaceable_files(const AnalyzeRequest& request, const ModelConfig& model,
                               const Selection& selection) {
  if (request.out.empty()) {
    return;
  }
  if (has_entry(request.out) && !std::filesystem::is_directory(request.out)) {
    throw UserError("--out: expected a directory, got the file " + request.out);
  }
  for (const std::string& name : files_of(*request.what, model, selection)) {
    require_replaceable("--out", (std::filesystem::path(request.out) / name).string(),
                        "a file of analyze", is_file_of_analysis);
  }
}

SubjectOptions subject_options(const AnalyzeRequest& request, const TrainConfig& train) {
  if (const auto warning = too_many_threads(train)) {
    log::warn(*warning);
  }
  ops::configure_threads(train.threads, train.deterministic);
  return {.split = request.split,
          .windows = request.samples,
          .device = ops::select_device(request.device.value_or(DeviceChoice::automatic))};
}

void answer_for(const AnalyzeRequest& request, const Subject& subject, const Selection& selection) {
  OutputDirectory out = request.out.empty() ? OutputDirectory() : OutputDirectory(request.out);
  const Answer answer = measure(*request.what, subject, selection, out);
  if (request.json) {
    std::cout << answer.json.dump(2) << '\n';
    return;
  }
  std::cout << answer.note << "\n"
            << (subject.trained ? "Trained" : "Initial") << " weights, " << subject.text << ", "
            << answer.json.at("samples") << " of up to " << format_count(subject.length)
            << " tokens.\n\n"
            << to_text(answer.table);
  for (const std::string& file : out.files()) {
    std::cout << (file == out.files().front() ? "\n" : "") << file << '\n';
  }
}

ExitStatus run_analyze(const AnalyzeRequest& request) {
  if (std::filesystem::is_directory(request.path)) {
    if (!request.sets.empty()) {
      throw UserError("--set: only a config can be changed, and " + request.path +
                      " is a checkpoint");
    }
    const Checkpoint checkpoint = Checkpoint::open(request.path);
    const Config& config = checkpoint.config();
    const Selection selection = selection_of(request, config.model);
    require_replaceable_files(request, config.model, selection);
    answer_for(request, subject_of(checkpoint, subject_options(request, config.train)), selection);
  } else {
    const Config config =
        reported(load_config(request.path, request.sets), ConfigReader::analyze).config;
    const Selection selection = selection_of(request, config.model);
    require_replaceable_files(request, config.model, selection);
    answer_for(request, subject_of(config, subject_options(request, config.train)), selection);
  }
  return ExitStatus::done;
}

}  // namespace

void add_analyze(CLI::App& app, Run& run) {
  CLI::App* command =
      app.add_subcommand("analyze", "What a model's attentions do: dilution, gradients, ranks");
  auto request = std::make_shared<AnalyzeRequest>();
  add_path(*command, "CHECKPOINT|CONFIG", request->path,
           "A checkpoint or run directory, or a config, whose model has its initial weights")
      ->required();
  add_choice<Measurement>(*command, "--what", kMeasurementNames, request->what,
                          "What to measure: the attention in a window around each token, attention "
                          "matrices, gradients beside their bounds, sizes with and without a "
                          "denominator, ranks")
      ->required();
  add_choice<Split>(*command, "--split", kAnalyzedSplits, request->split,
                    "Which text (valid unless told)");
  add_integer(*command, "--samples", request->samples, {.min = 1},
              "Windows of data.tokens_per_sample, evenly taken over the text")
      ->default_str("8");
  command->add_option("--layers", request->layers, "Of these layers: 0,3 or all")
      ->type_name("LIST")
      ->default_str("all");
  command->add_option("--heads", request->heads, "Of these heads: 0,3 or all")
      ->type_name("LIST")
      ->default_str("all");
  add_path(*command, "--out", request->out, "Write tables (CSV) and pictures (PNG) there");
  command->add_flag("--json", request->json, "Print one JSON object");
  add_sets(*command, request->sets);
  add_device(*command, request->device, "auto");
  command->callback([request, &run] { run = [request] { return run_analyze(*request); }; });
}

}  // namespace transnormer::cli
