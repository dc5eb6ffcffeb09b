#include "train/initial_weights.h"

#include <set>
#include <string>
#include <vector>

#include "checkpoint/identity.h"
#include "config/names.h"
#include "model/weights.h"
#include "train/training_run.h"
#include "util/error.h"
#include "util/units.h"

namespace transnormer {
namespace {

constexpr const char* kKey = "train.init_from: ";
constexpr const char* kType = "tokenizer.type";
constexpr const char* kLineEnd = "data.line_end";

// Of the model's numbers, in percent.
std::string share_taken(const TransNormer& model, const LoadReport& report) {
  const std::set<std::string> taken(report.taken.begin(), report.taken.end());
  std::int64_t all = 0;
  std::int64_t from_there = 0;
  for (const NamedTensor& named : named_tensors(model)) {
    all += named.tensor.numel();
    from_there += taken.contains(named.name) ? named.tensor.numel() : 0;
  }
  return format_fixed(100.0 * static_cast<double>(from_there) / static_cast<double>(all), 1) +
         "% of the model's numbers";
}

std::string nothing_in_common(const Checkpoint& initial, const LoadReport& report) {
  std::string fault = kKey + initial.path().string() +
                      ": has no weights in common with this model, by name and size";
  for (const std::string& line : report.lines()) {
    fault += "; " + line;
  }
  return fault + "; name a checkpoint of a model of this width, or leave it out";
}

std::string spelled(TokenizerType type) {
  return name_of<TokenizerType>(kTokenizerNames, type);
}

std::string spelled(LineEnd line_end) {
  return name_of<LineEnd>(kLineEndNames, line_end);
}

// Its config may name another, where its tokenizer was that of a file.
TokenizerType type_of(const Checkpoint& initial) {
  return tokenizer_type(initial.tokenizer()->serialized()).value_or(TokenizerType::word);
}

bool is_named(const LoadedConfig& loaded, const char* key) {
  const std::string& origin = loaded.origins.at(key);
  return origin != "default" && origin != kType;
}

template <class Value>
void take(const char* key, Value value, Value& place, LoadedConfig& loaded) {
  if (!is_named(loaded, key) && place != value) {
    place = value;
    loaded.origins[key] = "train.init_from";
  }
}

}  // namespace

void take_coding(TokenizerType type, LineEnd line_end, LoadedConfig& loaded) {
  take(kType, type, loaded.config.tokenizer.type, loaded);
  if (loaded.config.tokenizer.type == type) {  // else the config is to be refused
    take(kLineEnd, line_end, loaded.config.data.line_end, loaded);
  }
}

CodingTaken take_coding(const Checkpoint& initial, LoadedConfig& loaded) {
  const Config before = loaded.config;
  const LineEnd of_weights = initial.config().data.line_end;
  take_coding(type_of(initial), of_weights, loaded);
  CodingTaken taken;
  for (const ConfigChange& change : config_changes(before, loaded.config)) {
    taken.told.push_back(change.key + ": " + change.after + ", as for the weights of " +
                         initial.path().string() + " (train.init_from)");
  }
  const LineEnd now = loaded.config.data.line_end;
  if (now != of_weights) {
    taken.warnings.push_back(std::string(kLineEnd) + ": is \"" + spelled(now) +
                             "\", and the weights of " + initial.path().string() +
                             " (train.init_from) were trained with \"" + spelled(of_weights) +
                             "\"; leave it out to code line ends as they know them");
  }
  return taken;
}

std::optional<Checkpoint> open_initial_weights(const Config& config) {
  if (config.train.init_from.empty()) {
    return std::nullopt;
  }
  try {
    return Checkpoint::open(config.train.init_from);
  } catch (const UserError& error) {
    std::vector<std::string> faults = error.faults();
    for (std::string& fault : faults) {
      fault.insert(0, kKey);
    }
    throw UserError(faults);
  }
}

std::shared_ptr<const Tokenizer> tokenizer_of(const Checkpoint& initial, const Config& config) {
  const std::string& path = config.tokenizer.path;
  if (!path.empty() && load_tokenizer(path)->digest() != initial.tokenizer()->digest()) {
    throw UserError(
        "tokenizer.path: " + path + " is not the tokenizer of " + initial.path().string() +
        ", whose weights (train.init_from) fit no other; set it to \"\" to take that of "
        "the checkpoint");
  }
  const TokenizerType found = type_of(initial);
  if (found != config.tokenizer.type) {
    const std::string type = spelled(found);
    throw UserError("tokenizer.type: is \"" + spelled(config.tokenizer.type) +
                    "\", and the tokenizer of " + initial.path().string() +
                    " (train.init_from), which its weights need, is of type \"" + type +
                    "\"; leave tokenizer.type out or set it to \"" + type + '"');
  }
  return initial.tokenizer();
}

void take_initial_weights(TrainingRun& run) {
  const Checkpoint& initial = *run.initial;
  const LoadReport report = initial.load_common_into(*run.model);
  if (report.taken.empty()) {
    throw UserError(nothing_in_common(initial, report));
  }
  require_finite_weights(*run.model, initial.path().string());
  run.state.initial_weights_digest = weights_digest(initial);
  run.origin = "started with weights of " + initial.path().string() + " (step " +
               format_count(initial.state().step) + ")";
  const std::string share = share_taken(*run.model, report);
  run.notes.push_back(
      {.name = "weights_taken",
       .message = "weights of " + initial.path().string() + ": " + share + ", and its tokenizer"});
  for (const std::string& line : report.lines()) {
    run.notes.push_back({.name = "weights_taken",
                         .message = line,
                         .level = report.resized.empty() ? log::Level::info : log::Level::warning});
  }
}

}  // namespace transnormer
