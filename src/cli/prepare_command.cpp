// prepare: tokenises the text of a config into the cache, and counts it.
#include <cstdio>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "cli/commands.h"
#include "cli/options.h"
#include "config/load.h"
#include "data/prepare.h"
#include "log/console.h"
#include "train/initial_weights.h"
#include "util/signal.h"
#include "util/units.h"

namespace transnormer::cli {
namespace {

struct PrepareRequest {
  std::string config;
  std::vector<std::string> sets;
  bool json = false;
};

std::string with_share(std::int64_t part, std::int64_t whole) {
  const double percent = 100.0 * static_cast<double>(part) / static_cast<double>(whole);
  return format_count(part) + " (" + format_fixed(percent, 2) + "%)";
}

std::string speed(const PreparedSplit& split) {
  if (split.seconds == 0) {
    return "cached";
  }
  return format_fixed(static_cast<double>(split.counts.bytes) / 1e6 / split.seconds, 1) + " MB/s";
}

void print_row(const std::vector<std::string>& cells) {
  std::printf("%-6s", cells.front().c_str());
  for (std::size_t i = 1; i < cells.size(); ++i) {
    std::printf("%18s", cells[i].c_str());
  }
  std::printf("\n");
}

void print_table(const PreparedData& data) {
  print_row({"split", "tokens", "types", "unknown", "lines", "bytes", "tokenised at"});
  for (const Split name : kSplits) {
    if (const std::optional<PreparedSplit>& split = data.find(name)) {
      const SplitCounts& counts = split->counts;
      print_row({to_string(name), format_count(counts.tokens), format_count(counts.types),
                 with_share(counts.unknown, counts.tokens), format_count(counts.lines),
                 format_count(counts.bytes), speed(*split)});
    }
  }
  std::printf("vocabulary: %s\n", format_count(data.tokenizer->size()).c_str());
}

void print_json(const PreparedData& data) {
  nlohmann::ordered_json splits = nlohmann::ordered_json::object();
  for (const Split name : kSplits) {
    if (const std::optional<PreparedSplit>& split = data.find(name)) {
      const SplitCounts& counts = split->counts;
      splits[to_string(name)] = {{"tokens", counts.tokens},
                                 {"types", counts.types},
                                 {"unknown", counts.unknown},
                                 {"lines", counts.lines},
                                 {"bytes", counts.bytes}};
    }
  }
  const nlohmann::ordered_json answer{{"splits", std::move(splits)},
                                      {"vocab_size", data.tokenizer->size()}};
  std::cout << answer.dump() << '\n';
}

void report(const CodingTaken& taken) {
  for (const std::string& line : taken.told) {
    log::info(line);
  }
  for (const std::string& line : taken.warnings) {
    log::warn(line);
  }
}

ExitStatus run_prepare(const PrepareRequest& request) {
  install_signal_handlers();
  LoadedConfig loaded = reported(load_config(request.config, request.sets), ConfigReader::prepare);
  const DataConfig& text = loaded.config.data;
  if (text.train.empty() && text.valid.empty() && text.test.empty()) {
    throw UserError(request.config +
                    ": names no text to prepare; set data.train, data.valid or data.test");
  }
  const std::optional<Checkpoint> initial = open_initial_weights(loaded.config);
  if (initial) {
    report(take_coding(*initial, loaded));
  }
  const PreparedData data = initial
                                ? prepare_data(loaded.config, tokenizer_of(*initial, loaded.config))
                                : prepare_data(loaded.config);
  (request.json ? print_json : print_table)(data);
  return ExitStatus::done;
}

}  // namespace

void add_prepare(CLI::App& app, Run& run) {
  CLI::App* command = app.add_subcommand("prepare", "Tokenise a config's text into the cache");
  auto request = std::make_shared<PrepareRequest>();
  add_path(*command, "CONFIG", request->config, "A config file")->required();
  command->add_flag("--json", request->json, "Print one JSON object");
  add_sets(*command, request->sets);
  command->callback([request, &run] { run = [request] { return run_prepare(*request); }; });
}

}  // namespace transnormer::cli
