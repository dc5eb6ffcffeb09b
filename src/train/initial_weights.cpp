#include "train/initial_weights.h"

#include <set>
#include <string>
#include <vector>

#include "config/names.h"
#include "model/weights.h"
#include "train/training_run.h"
#include "util/error.h"
#include "util/units.h"

namespace transnormer {
namespace {

constexpr const char* kKey = "train.init_from: ";

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

}  // namespace

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
  // Line ends are coded otherwise with byte-level BPE.
  const auto is_bpe = [](const Config& c) { return c.tokenizer.type == TokenizerType::bpe; };
  if (is_bpe(initial.config()) != is_bpe(config)) {
    const char* type = name_of<TokenizerType>(kTokenizerNames, initial.config().tokenizer.type);
    throw UserError(std::string("tokenizer.type: is \"") +
                    name_of<TokenizerType>(kTokenizerNames, config.tokenizer.type) +
                    "\", and the tokenizer of " + initial.path().string() +
                    " (train.init_from), which its weights need, is of type \"" + type +
                    "\"; set tokenizer.type to \"" + type + '"');
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
