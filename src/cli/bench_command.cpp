// bench: tokens a second and memory by attention and length, on random tokens.
#include <array>
#include <cstdio>
#include <functional>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "bench/bench.h"
#include "checkpoint/checkpoint.h"
#include "cli/commands.h"
#include "cli/options.h"
#include "cli/run_length.h"
#include "config/fields.h"
#include "config/load.h"
#include "config/names.h"
#include "log/console.h"
#include "model/attention/registry.h"
#include "model/model_size.h"
#include "ops/runtime/device.h"
#include "train/micro_batch.h"
#include "util/file.h"
#include "util/units.h"

namespace transnormer::cli {
namespace {

struct BenchRequest {
  std::string config;
  std::vector<std::string> sets;
  BenchMode mode = BenchMode::train;
  std::vector<std::int64_t> lengths;
  std::optional<std::int64_t> batch_size;
  std::vector<std::string> attentions;
  std::int64_t repeats = 5;
  bool json = false;
  std::string csv;
  std::optional<DeviceChoice> device;
  std::optional<Precision> precision;
};

struct BenchRow {
  BenchCase bench_case;
  BenchFigures figures;
  double peak_share = 0;
};

struct BenchPlan {
  BenchOptions options;
  std::vector<BenchCase> cases;
  std::string precision;
  bool all_causal = true;
  // Of the config's own run, where that is what is timed: training on its own lengths.
  std::optional<RunLength> run;
};

constexpr std::array kModeNames{Named{BenchMode::train, "train"}, Named{BenchMode::infer, "infer"},
                                Named{BenchMode::decode, "decode"}};

constexpr IntegerRange kPositive{.min = 1};

const char* to_string(BenchMode mode) {
  return name_of<BenchMode>(kModeNames, mode);
}

// "t2", or for a custom model "diag/norm": early and late layers.
std::string own_name(const ModelConfig& model) {
  if (model.variant != ModelVariant::custom) {
    return transnormer::to_string(model.variant);
  }
  const std::string early = model.early.name();
  const std::string late = model.late.name();
  return early == late ? early : early + "/" + late;
}

// "diag, norm".
std::string attention_names() {
  std::string names;
  for (const char* name : attentions().names()) {
    names += (names.empty() ? "" : ", ") + std::string(name);
  }
  return names;
}

// Gives horizons the length of the row, as tables of positions have it, and no projection more
// rows.
class FitToLength : public FieldVisitor {
 public:
  explicit FitToLength(std::int64_t length) : length_(length) {}
  void integer(const Field& field, std::int64_t& value, const IntegerRange&) override {
    const std::string_view key(field.key);
    if (key == "horizon") {
      value = 0;
    } else if (key == "rank") {
      value = std::min(value, length_);
    }
  }
  void section(const Field&, const std::function<void()>& body) override { body(); }
  void alternatives(const Field&, UnionValue& value) override { value.visit(*this); }
  void flag(const Field&, bool&) override {}
  void number(const Field&, double&, const NumberRange&) override {}
  void number_pair(const Field&, std::array<double, 2>&, const NumberRange&) override {}
  void text(const Field&, std::string&, TextKind) override {}
  void paths(const Field&, std::vector<std::string>&) override {}
  void texts(const Field&, std::vector<std::string>&) override {}
  void choice(const Field&, const Choice&) override {}

 private:
  std::int64_t length_;
};

// A variant stands for all of its parts; an attention replaces the early and the late one, with the
// settings that the config has for it, if it has.
ModelConfig model_with(const std::string& name, const BenchRequest& request, const Config& config) {
  for (const auto& variant : kModelVariantNames) {
    if (name == variant.name && variant.value != ModelVariant::custom) {
      std::vector<std::string> sets = request.sets;
      sets.push_back("model.variant=" + name);
      // Not from the file again, which may be a pipe.
      return parse_config(config_to_json(config), request.config, sets).config.model;
    }
  }
  if (attentions().find(name) != nullptr) {
    ModelConfig model = config.model;
    model.variant = ModelVariant::custom;
    AttentionConfig chosen = model.early.name() == name ? model.early : model.late;
    chosen.select(name);
    model.early = model.late = chosen;
    model.causal = model.causal && abilities(chosen).causal;
    return model;
  }
  throw UserError("--attentions names \"" + name + "\"; known are t1, t2, transformer, " +
                  attention_names());
}

BenchPlan make_plan(const BenchRequest& request) {
  BenchPlan plan;
  plan.options.mode = request.mode;
  plan.options.repeats = request.repeats;
  const LoadedConfig loaded =
      reported(load_config(request.config, request.sets), ConfigReader::bench);
  const Config& config = loaded.config;
  const Precision precision = request.precision.value_or(config.train.precision);
  plan.precision = transnormer::to_string(precision);
  plan.options.compute = ops::scalar_type(precision);
  plan.options.device = ops::select_device(request.device.value_or(config.train.device));
  if (const auto warning = slow_precision(precision, plan.options.device)) {
    log::warn(*warning);
  }
  if (const auto warning = too_many_threads(config.train)) {
    log::warn(*warning);
  }
  plan.options.optimizer = config.optimizer;
  plan.options.activation_checkpointing = config.train.activation_checkpointing;
  ops::configure_threads(config.train.threads, config.train.deterministic);

  const KnownData known = known_data(loaded);
  const ModelSize size = model_size(config, known.tokenizer.get());
  const std::int64_t batch_size = request.batch_size
                                      ? *request.batch_size
                                      : expected_micro_batch(config, size, plan.options.device);
  std::vector<std::int64_t> lengths = request.lengths;
  if (lengths.empty()) {
    lengths.push_back(config.data.tokens_per_sample);
  }
  if (request.mode == BenchMode::train && request.attentions.empty() &&
      lengths == std::vector{config.data.tokens_per_sample}) {
    plan.run = run_length(config, known);
  }
  std::vector<std::pair<std::string, ModelConfig>> models;
  for (const std::string& name : request.attentions) {
    models.emplace_back(name, model_with(name, request, config));
  }
  if (models.empty()) {
    models.emplace_back(own_name(config.model), config.model);
  }
  for (const auto& [name, whole] : models) {
    for (const std::int64_t length : lengths) {
      ModelConfig model = whole;
      FitToLength fit(length);
      model.early.visit(fit);
      model.late.visit(fit);
      plan.cases.push_back({name, model, size.vocab_size, length, batch_size});
      if (request.mode == BenchMode::decode) {
        if (config.model.causal && !model.causal) {
          throw UserError("--attentions names \"" + name +
                          "\", which cannot be causal, so that it cannot decode; leave it out");
        }
        require_decoding(model);
      }
      if (const std::vector<std::string> faults =
              unfit_attentions(model, {.vocab_size = size.vocab_size, .max_positions = length});
          !faults.empty()) {
        throw UserError(faults);
      }
      require_memory(plan.cases.back(), plan.options);
      plan.all_causal = plan.all_causal && model.causal;
    }
  }
  return plan;
}

nlohmann::ordered_json to_json(const BenchRow& row, const BenchPlan& plan) {
  nlohmann::ordered_json json;
  json["attention"] = row.bench_case.attention;
  if (!plan.all_causal) {
    json["causal"] = row.bench_case.model.causal;
  }
  json["length"] = row.bench_case.length;
  json["batch_size"] = row.bench_case.batch_size;
  json["mode"] = to_string(plan.options.mode);
  json["precision"] = plan.precision;
  json["tokens_per_s"] = row.figures.tokens_per_s;
  json["tokens_per_s_median"] = row.figures.tokens_per_s_median;
  json["peak_memory_bytes"] = row.figures.peak_memory_bytes;
  json["gflops"] = row.figures.gflops;
  json["peak_share"] = row.peak_share;
  if (plan.options.mode == BenchMode::decode) {
    json["products_bytes_per_s"] = row.figures.products_bytes_per_s;
    json["reading_bytes_per_s"] = row.figures.reading_bytes_per_s;
  }
  return json;
}

// One line of names, then one a row; the same columns as in JSON.
std::string to_csv(const nlohmann::ordered_json& rows) {
  std::string csv;
  const auto add_line = [&csv](const nlohmann::ordered_json& row, bool names) {
    bool first = true;
    for (const auto& [name, value] : row.items()) {
      csv += first ? "" : ",";
      csv += names ? name : value.is_string() ? value.get<std::string>() : value.dump();
      first = false;
    }
    csv += '\n';
  };
  if (!rows.empty()) {
    add_line(rows.front(), true);
  }
  for (const auto& row : rows) {
    add_line(row, false);
  }
  return csv;
}

void print_head(const BenchPlan& plan) {
  std::cout << to_string(plan.options.mode) << " in " << plan.precision << ", best of "
            << plan.options.repeats << "; share of what plain products reach before or after it\n";
  std::printf("%-14s %9s %6s %12s %12s %12s %10s %6s\n", "attention", "length", "batch", "tokens/s",
              "median", "peak memory", "GFLOP/s", "share");
}

void print_row(const BenchRow& row) {
  std::printf(
      "%-14s %9s %6s %12s %12s %12s %10s %5s%%\n", row.bench_case.attention.c_str(),
      format_count(row.bench_case.length).c_str(), format_count(row.bench_case.batch_size).c_str(),
      format_fixed(row.figures.tokens_per_s, 1).c_str(),
      format_fixed(row.figures.tokens_per_s_median, 1).c_str(),
      format_bytes(static_cast<double>(row.figures.peak_memory_bytes)).c_str(),
      format_fixed(row.figures.gflops, 1).c_str(), format_fixed(100 * row.peak_share, 1).c_str());
  std::fflush(stdout);
}

// All of the answer in JSON; for people how long the config's run takes, where its own training was
// timed, at the median speed, and without validating and saving.
void print_rest(const BenchRequest& request, const BenchPlan& plan,
                const nlohmann::ordered_json& rows) {
  std::optional<double> speed;
  if (plan.run && !rows.empty()) {
    speed = rows.front().at("tokens_per_s_median").get<double>();
  }
  if (request.json) {
    nlohmann::ordered_json answer{{"rows", rows}, {"hours", nullptr}};
    if (speed) {
      answer["hours"] = hours_of(*plan.run, *speed);
    }
    std::cout << answer.dump(2) << '\n';
  } else if (speed) {
    std::cout << "the run as configured: " << describe(plan.run, speed) << '\n';
  }
}

ExitStatus run_bench_command(const BenchRequest& request) {
  const BenchPlan plan = make_plan(request);
  std::optional<FileWriter> csv;
  if (!request.csv.empty()) {
    require_replaceable("--csv", request.csv, "a table of bench", "attention,");
    csv.emplace(request.csv);
  }
  const auto measure_peak = [&] {
    return measure_product_gflops(plan.options.compute, plan.options.device);
  };
  double peak_before = measure_peak();
  if (!request.json) {
    print_head(plan);
  }
  nlohmann::ordered_json rows = nlohmann::ordered_json::array();
  for (const BenchCase& bench_case : plan.cases) {
    BenchRow row{bench_case, run_bench(bench_case, plan.options), 0};
    // On a shared machine one of the two may come at a bad moment.
    const double peak_after = measure_peak();
    row.peak_share = row.figures.gflops / std::max(peak_before, peak_after);
    peak_before = peak_after;
    rows.push_back(to_json(row, plan));
    if (!request.json) {
      print_row(row);
      if (std::ferror(stdout) != 0 && !csv) {
        break;  // nobody takes the answer
      }
    }
  }
  if (csv) {
    const std::string table = to_csv(rows);
    csv->write(table.data(), table.size());
    csv->finish();
  }
  print_rest(request, plan, rows);
  return ExitStatus::done;
}

}  // namespace

void add_bench(CLI::App& app, Run& run) {
  CLI::App* command = app.add_subcommand("bench", "Speed and memory of a config's model");
  auto request = std::make_shared<BenchRequest>();
  add_path(*command, "CONFIG", request->config, "The config file")->required();
  add_choice<BenchMode>(*command, "--mode", kModeNames, request->mode, "What to time")
      ->default_str("train");
  command
      ->add_option_function<std::vector<std::string>>(
          "--lengths",
          [&lengths = request->lengths](const std::vector<std::string>& texts) {
            for (const std::string& text : texts) {
              lengths.push_back(read_integer("--lengths", text, kPositive));
            }
          },
          "Tokens a sequence, several with commas (data.tokens_per_sample unless told)")
      ->type_name("INTEGER,..")
      ->delimiter(',')
      ->allow_extra_args(false);
  add_integer(*command, "--batch-size", request->batch_size, kPositive,
              "Sequences a step (the micro-batch of the config unless told)");
  command
      ->add_option("--attentions", request->attentions,
                   "Models to compare, with commas: t1, t2, transformer, or an attention to put "
                   "in every layer: " +
                       attention_names() + " (the config's own model unless told)")
      ->delimiter(',')
      ->allow_extra_args(false);
  add_integer(*command, "--repeat", request->repeats, kPositive, "Timed repeats")
      ->default_str(std::to_string(request->repeats));
  command->add_flag("--json", request->json, "Print one JSON object");
  add_path(*command, "--csv", request->csv, "Also write the rows to this file");
  add_sets(*command, request->sets);
  add_device(*command, request->device, "train.device");
  add_precision(*command, request->precision, "train.precision");
  command->callback([request, &run] { run = [request] { return run_bench_command(*request); }; });
}

}  // namespace transnormer::cli
