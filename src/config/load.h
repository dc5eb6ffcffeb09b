// From files and `--set` to a Config, and back.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "config/config.h"

namespace transnormer {

struct LoadedConfig {
  Config config;
  // For each dotted key ("model.dim"): "default", the file that set it, "--set", "model.variant"
  // where a named variant fixes it, or "tokenizer.type" where that sets the default.
  std::map<std::string, std::string> origins;
  std::vector<std::string> warnings;
};

// Defaults < included files < the file < `sets` ("a.b=v" each). Paths become absolute. Throws one
// UserError that holds every fault: unknown or duplicate keys, wrong types, values out of range,
// contradictions between keys. A relative path starts from the directory of the file that holds
// it, one in a `--set`, in a pipe and the default cache_dir from the working directory. An unset
// run_name becomes the file's stem, if that can be one, and stays empty for a pipe.
[[nodiscard]] LoadedConfig load_config(const std::filesystem::path& file,
                                       const std::vector<std::string>& sets = {});

// The same for a resolved config held in memory (a checkpoint's); `name` stands in messages. What
// paths are relative start from the working directory.
[[nodiscard]] LoadedConfig parse_config(const std::string& json, const std::string& name,
                                        const std::vector<std::string>& sets = {});

// The resolved config: plain JSON, every key spelled out, in declared order.
[[nodiscard]] std::string config_to_json(const Config& config);

// The same for people: a comment behind each key tells its origin. It is a valid config, too.
[[nodiscard]] std::string config_with_origins(const LoadedConfig& loaded);

// Markdown tables of every key: default, values, meaning.
[[nodiscard]] std::string config_reference();

// JSON Schema (draft 2020-12) of a config file.
[[nodiscard]] std::string config_schema();

// What a resume may change, as declared beside each key.
enum class OnResume { silent, warn, refuse };

struct ConfigChange {
  std::string key;     // dotted
  std::string before;  // as JSON
  std::string after;
  OnResume on_resume;
};

// Every key whose value differs, in declared order. Places of files (data.*, tokenizer.path) are
// listed too; whether their content is the same is for the caller to judge, by digest.
[[nodiscard]] std::vector<ConfigChange> config_changes(const Config& before, const Config& after);

}  // namespace transnormer
