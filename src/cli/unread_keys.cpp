#include "cli/unread_keys.h"

#include <algorithm>
#include <string_view>

namespace transnormer::cli {
namespace {

struct Reads {
  const char* command;
  std::vector<std::string_view> keys;  // sections end in "."
};

// `log.level` is everyone's; `run_name` names the run of a config, whoever reads it.
Reads reads_of(ConfigReader reader) {
  switch (reader) {
    case ConfigReader::prepare:
      return {"prepare", {"data.", "tokenizer.", "train.threads", "train.init_from"}};
    case ConfigReader::tokenizer:
      return {"tokenizer train", {"data.", "tokenizer.", "train.threads"}};
    case ConfigReader::eval:
      return {"eval",
              {"data.", "tokenizer.", "validation.batch_size", "validation.context_window",
               "train.threads", "train.deterministic", "train.global_batch_size",
               "train.micro_batch_size", "distributed."}};
    case ConfigReader::analyze:
      return {"analyze",
              {"model.", "data.", "tokenizer.", "train.threads", "train.deterministic",
               "train.seed", "train.objective"}};
    case ConfigReader::inspect:
      return {"inspect",
              {"model.", "data.", "tokenizer.", "optimizer.", "train.steps", "train.max_epochs",
               "train.global_batch_size", "train.micro_batch_size", "train.precision",
               "train.activation_checkpointing", "train.objective", "train.threads",
               "train.init_from"}};
    case ConfigReader::bench:
      return {"bench",
              {"model.", "data.", "tokenizer.", "optimizer.", "train.steps", "train.max_epochs",
               "train.global_batch_size", "train.micro_batch_size", "train.precision",
               "train.activation_checkpointing", "train.objective", "train.threads",
               "train.deterministic", "train.device", "train.seed", "train.init_from"}};
    case ConfigReader::all:
      break;
  }
  return {"", {""}};
}

bool is_read(const std::string& key, const Reads& reads) {
  return key == "log.level" || key == "run_name" ||
         std::any_of(reads.keys.begin(), reads.keys.end(), [&key](std::string_view read) {
           return read.empty() || key == read || (read.ends_with('.') && key.starts_with(read));
         });
}

}  // namespace

std::vector<std::string> unread_sets(const LoadedConfig& loaded, ConfigReader reader) {
  const Reads reads = reads_of(reader);
  std::vector<std::string> warnings;
  for (const auto& [key, origin] : loaded.origins) {
    if (origin == "--set" && !is_read(key, reads)) {
      warnings.push_back("--set " + key + ": `" + reads.command +
                         "` does not read it, so it changes nothing");
    }
  }
  return warnings;
}

}  // namespace transnormer::cli
