// inspect: the parameters of a model, its operations and memory; what a file holds.
#include <cstdio>
#include <filesystem>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/checkpoint.h"
#include "cli/commands.h"
#include "cli/options.h"
#include "cli/run_length.h"
#include "cli/run_summary.h"
#include "config/load.h"
#include "config/names.h"
#include "data/cache_file.h"
#include "model/attention/registry.h"
#include "model/flops.h"
#include "model/footprint.h"
#include "model/model_size.h"
#include "model/weights.h"
#include "ops/runtime/device.h"
#include "optim/registry.h"
#include "tokenizer/tokenizer.h"
#include "train/micro_batch.h"
#include "util/units.h"

namespace transnormer::cli {
namespace {

using Json = nlohmann::ordered_json;

struct InspectRequest {
  std::string path;
  std::vector<std::string> sets;
  std::optional<double> tokens_per_s;
  bool json = false;
};

// Neighbouring layers with one attention.
struct AttentionReport {
  std::string name;
  std::string cost;  // in the length n
  std::int64_t first = 0;
  std::int64_t last = 0;
  std::int64_t parameters = 0;  // of its own, in each layer
  BlockFlops flops;             // of each layer, a token
  StateBytes state;             // of each layer and sequence, for decoding
  bool decodes = true;
};

// What there is to say about a model, made from its config without its weights.
struct ModelReport {
  std::vector<NamedTensor> tensors;  // on at::kMeta
  std::int64_t parameters = 0;
  std::int64_t trainable = 0;
  std::int64_t vocab_size = 0;
  std::vector<AttentionReport> attentions;
  FlopsPerToken flops;
  PassShape pass;
  MemoryEstimate memory;
};

std::vector<AttentionReport> attentions_of(const TransNormer& model,
                                           const std::vector<NamedTensor>& tensors,
                                           const Config& config) {
  std::vector<AttentionReport> reports;
  const std::int64_t early = config.model.resolved_early_layers();
  for (std::int64_t layer = 0; layer < config.model.layers; ++layer) {
    const AttentionConfig& attention = layer < early ? config.model.early : config.model.late;
    const bool starts = layer == 0 || (layer == early && config.model.early != config.model.late);
    if (!starts) {
      reports.back().last = layer;
      continue;
    }
    const Block& block = *model.blocks()[static_cast<std::size_t>(layer)];
    AttentionReport report{.name = attention.name(),
                           .cost = attention_kinds().at(attention.name()).cost,
                           .first = layer,
                           .last = layer,
                           .flops = block.flops_per_token(config.data.tokens_per_sample),
                           .state = {},
                           .decodes = abilities(attention).decodes && config.model.causal};
    if (report.decodes) {
      report.state = block.state_bytes(ops::scalar_type(config.train.precision));
    }
    const std::string own = "layers." + std::to_string(layer) + ".attn.";
    for (const NamedTensor& named : tensors) {
      report.parameters += named.counted && named.name.starts_with(own) ? named.tensor.numel() : 0;
    }
    reports.push_back(std::move(report));
  }
  return reports;
}

ModelReport report_on(const Config& config, const ModelSize& size) {
  ModelReport report;
  const TransNormer model(config.model, size, at::kMeta);
  report.tensors = named_tensors(model);
  for (const NamedTensor& named : report.tensors) {
    report.parameters += named.counted ? named.tensor.numel() : 0;
    report.trainable += named.trainable ? named.tensor.numel() : 0;
  }
  report.vocab_size = size.vocab_size;
  report.attentions = attentions_of(model, report.tensors, config);
  report.flops = flops_per_token(model, config.data.tokens_per_sample);
  report.pass = {.sequences = expected_micro_batch(config, size, at::kCPU),
                 .length = config.data.tokens_per_sample,
                 .compute = ops::scalar_type(config.train.precision),
                 .activation_checkpointing = config.train.activation_checkpointing};
  report.memory =
      training_memory(config.model, size, optimizer_shape(config.optimizer), report.pass);
  return report;
}

Json to_json(const ModelReport& report) {
  Json json;
  json["parameters"] = report.parameters;
  json["trainable_parameters"] = report.trainable;
  json["vocab_size"] = report.vocab_size;
  json["flops_per_token"] = {{"output", report.flops.output},
                             {"layers", report.flops.layers},
                             {"attention", report.flops.attention},
                             {"forward", report.flops.forward()},
                             {"train", report.flops.train()}};
  json["attentions"] = Json::array();
  for (const AttentionReport& attention : report.attentions) {
    Json state = nullptr;  // it cannot decode
    if (attention.decodes) {
      state = {{"fixed", attention.state.fixed}, {"per_token", attention.state.per_token}};
    }
    json["attentions"].push_back({{"attention", attention.name},
                                  {"layers", {attention.first, attention.last}},
                                  {"parameters", attention.parameters},
                                  {"flops_per_token", attention.flops.attention},
                                  {"state_bytes", state},
                                  {"cost", attention.cost}});
  }
  json["memory_bytes"] = {
      {"weights", report.memory.weights},         {"gradients", report.memory.gradients},
      {"optimizer", report.memory.optimizer},     {"average", report.memory.average},
      {"activations", report.memory.activations}, {"total", report.memory.total()},
      {"snapshot", report.memory.snapshot}};
  json["tensors"] = Json::array();
  for (const NamedTensor& named : report.tensors) {
    json["tensors"].push_back({{"name", named.name},
                               {"shape", named.tensor.sizes().vec()},
                               {"numbers", named.tensor.numel()},
                               {"trainable", named.trainable}});
  }
  return json;
}

std::string shape_of(const at::Tensor& tensor) {
  std::string text;
  for (const std::int64_t size : tensor.sizes()) {
    text += (text.empty() ? "" : " x ") + std::to_string(size);
  }
  return text;
}

// "131 kB", "131 kB + 512 B a token".
std::string state_of(const AttentionReport& attention) {
  if (!attention.decodes) {
    return "cannot decode";
  }
  const StateBytes& state = attention.state;
  std::string text = state.fixed > 0 || state.per_token == 0 ? format_bytes(state.fixed) : "";
  if (state.per_token > 0) {
    text += (text.empty() ? "" : " + ") + format_bytes(state.per_token) + " a token";
  }
  return text;
}

// One line for each attention: of one of its layers.
void print_attentions(const ModelReport& report, const Config& config) {
  std::printf("attention        %-15s %-8s %12s  %-26s %s\n", "", "layers", "parameters",
              ("FLOPs a token of " + format_count(config.data.tokens_per_sample)).c_str(),
              "state of decoding, a sequence");
  for (const AttentionReport& attention : report.attentions) {
    const std::string layers =
        attention.first == attention.last
            ? std::to_string(attention.first)
            : std::to_string(attention.first) + " to " + std::to_string(attention.last);
    std::printf("                 %-15s %-8s %12s  %-26s %s\n", attention.name.c_str(),
                layers.c_str(), format_count(attention.parameters).c_str(),
                (format_short(attention.flops.attention) + ", in all " + attention.cost).c_str(),
                state_of(attention).c_str());
  }
}

void print_report(const ModelReport& report, const Config& config) {
  const ModelConfig& model = config.model;
  std::printf("%s: %lld layers, %lld wide, %lld heads, %s tokens in the vocabulary\n\n",
              to_string(model.variant), static_cast<long long>(model.layers),
              static_cast<long long>(model.dim), static_cast<long long>(model.heads),
              format_count(report.vocab_size).c_str());
  for (const NamedTensor& named : report.tensors) {
    std::printf("%-36s %16s %14s%s\n", named.name.c_str(), shape_of(named.tensor).c_str(),
                format_count(named.tensor.numel()).c_str(), named.trainable ? "" : "  frozen");
  }
  std::printf("\nparameters       %s, %s of them trained\n",
              format_count(report.parameters).c_str(), format_count(report.trainable).c_str());
  print_attentions(report, config);
  const FlopsPerToken& flops = report.flops;
  std::printf(
      "FLOPs a token    %s forward (output layer %s, layers %s, attention %s), %s training\n",
      format_short(flops.forward()).c_str(), format_short(flops.output).c_str(),
      format_short(flops.layers).c_str(), format_short(flops.attention).c_str(),
      format_short(flops.train()).c_str());
  const MemoryEstimate& memory = report.memory;
  const std::string average =
      memory.average > 0 ? "mean of the weights " + format_bytes(memory.average) + ", " : "";
  std::printf(
      "training memory  about %s: weights %s, gradients %s, optimizer %s, %sactivations %s\n",
      format_bytes(memory.total()).c_str(), format_bytes(memory.weights).c_str(),
      format_bytes(memory.gradients).c_str(), format_bytes(memory.optimizer).c_str(),
      average.c_str(), format_bytes(memory.activations).c_str());
  std::printf("                 beside it %s for the copy that is saved in the background\n",
              format_bytes(memory.snapshot).c_str());
  std::printf("                 (%lld sequences of %lld tokens a pass, %s%s)\n",
              static_cast<long long>(report.pass.sequences),
              static_cast<long long>(report.pass.length), to_string(config.train.precision),
              report.pass.activation_checkpointing ? ", layers recomputed" : "");
}

void inspect_config(const InspectRequest& request) {
  const LoadedConfig loaded =
      reported(load_config(request.path, request.sets), ConfigReader::inspect);
  const Config& config = loaded.config;
  const KnownData known = known_data(loaded);
  const ModelReport report = report_on(config, model_size(config, known.tokenizer.get()));
  const std::optional<RunLength> length = run_length(config, known);
  if (!request.json) {
    print_report(report, config);
    std::cout << "run as configured " << describe(length, request.tokens_per_s) << '\n';
    return;
  }
  Json json{{"kind", "config"}};
  json.update(to_json(report));
  json.update(to_json(length, request.tokens_per_s));
  std::cout << json.dump(2) << '\n';
}

// "average of 3 checkpoints, of updates 100, 200, 300; ", or nothing.
std::string origin_of(const Checkpoint& checkpoint) {
  const std::vector<AveragedCheckpoint>& averaged = checkpoint.manifest().averaged;
  if (averaged.empty()) {
    return "";
  }
  std::string text =
      "average of " + format_count(std::ssize(averaged)) + " checkpoints, of updates ";
  for (const AveragedCheckpoint& source : averaged) {
    text += (&source == &averaged.front() ? "" : ", ") + format_count(source.step);
  }
  return text + "; the newest: ";
}

void inspect_checkpoint(const InspectRequest& request) {
  const Checkpoint checkpoint = Checkpoint::open(request.path);
  const Config& config = checkpoint.config();
  const TrainingState& state = checkpoint.state();
  const ModelReport report = report_on(config, model_size(config, checkpoint.tokenizer().get()));
  const std::optional<RunSummary> run = summary_of_run(request.path);
  if (!request.json) {
    std::cout << (run ? to_text(*run) + '\n' : "");
    std::cout << checkpoint.path().string() << ": " << origin_of(checkpoint) << "update "
              << format_count(state.step) << ", " << format_count(state.tokens) << " tokens seen"
              << (state.finished ? ", finished: " + state.finish_reason : "") << "\n";
    print_report(report, config);
    return;
  }
  Json json{{"kind", "checkpoint"},
            {"path", checkpoint.path().string()},
            {"step", state.step},
            {"tokens", state.tokens},
            {"finished", state.finished}};
  for (const AveragedCheckpoint& source : checkpoint.manifest().averaged) {
    json["averaged"].push_back({{"path", source.path}, {"step", source.step}});
  }
  if (run) {
    json["run"] = to_json(*run);
  }
  json.update(to_json(report));
  std::cout << json.dump(2) << '\n';
}

void inspect_cache(const InspectRequest& request) {
  const CacheInfo info = read_cache_info(request.path);
  const SplitCounts& counts = info.counts;
  if (!request.json) {
    std::cout << request.path << ": text cache, format " << info.version << ", " << info.token_width
              << " bytes a token\n"
              << "tokens           " << format_count(counts.tokens) << " ("
              << format_count(counts.types) << " types, " << format_count(counts.unknown)
              << " unknown)\n"
              << "vocabulary       " << format_count(info.vocab_size) << "\n"
              << "source           " << format_count(counts.lines) << " lines, "
              << format_count(counts.words) << " words, " << format_count(counts.bytes)
              << " bytes\n"
              << "tokenizer        " << info.key.tokenizer_digest << "\n"
              << "source's digest  " << info.key.source_digest << "\n";
    return;
  }
  std::cout << Json{{"kind", "cache"},
                    {"version", info.version},
                    {"token_width", info.token_width},
                    {"vocab_size", info.vocab_size},
                    {"tokens", counts.tokens},
                    {"types", counts.types},
                    {"unknown", counts.unknown},
                    {"lines", counts.lines},
                    {"words", counts.words},
                    {"bytes", counts.bytes},
                    {"tokenizer_digest", info.key.tokenizer_digest},
                    {"source_digest", info.key.source_digest},
                    {"content_digest", info.content_digest}}
                   .dump(2)
            << '\n';
}

ExitStatus run_inspect(const InspectRequest& request) {
  const bool is_checkpoint = std::filesystem::is_directory(request.path);
  const bool is_cache =
      std::filesystem::is_regular_file(request.path) && is_cache_file(request.path);
  if ((is_checkpoint || is_cache) && !request.sets.empty()) {
    throw UserError("--set: only a config can be changed, and " + request.path + " is a " +
                    (is_checkpoint ? "checkpoint" : "cache"));
  }
  if ((is_checkpoint || is_cache) && request.tokens_per_s) {
    throw UserError("--tokens-per-s: tells how long a config's run takes, and " + request.path +
                    " is a " + (is_checkpoint ? "checkpoint" : "cache"));
  }
  if (is_checkpoint) {
    inspect_checkpoint(request);
  } else if (is_cache) {
    inspect_cache(request);
  } else {
    inspect_config(request);
  }
  return ExitStatus::done;
}

}  // namespace

void add_inspect(CLI::App& app, Run& run) {
  CLI::App* command =
      app.add_subcommand("inspect", "Parameters, operations and memory; what a file holds");
  auto request = std::make_shared<InspectRequest>();
  add_path(*command, "PATH", request->path,
           "A config, a checkpoint or run directory, or a text cache")
      ->required();
  command->add_flag("--json", request->json, "Print one JSON object");
  add_number(*command, "--tokens-per-s", request->tokens_per_s, {.min = 0, .min_open = true},
             "Also tell the hours that the config's run takes at this speed");
  add_sets(*command, request->sets);
  command->callback([request, &run] { run = [request] { return run_inspect(*request); }; });
}

}  // namespace transnormer::cli
