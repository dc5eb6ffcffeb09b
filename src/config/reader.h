// Reads one layer (a file, or one `--set`) into a Config: types, ranges, choices, unknown keys.
#pragma once

#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "config/config.h"
#include "config/json_tree.h"

namespace transnormer {

// One level of the order of precedence.
struct ConfigLayer {
  std::string name;                 // "configs/x.json" or "--set"
  std::filesystem::path directory;  // where relative paths start; absolute
  JsonNode root;                    // an object of sections
  std::vector<Fault> faults;        // found while parsing
};

// Where the value of a key came from.
struct Origin {
  std::string source;  // the layer's name
  std::string place;   // the same with the line, for messages
};

struct ReadState {
  std::map<std::string, Origin> origins;  // by dotted key, of the keys that were named
  std::set<std::string> faulty;           // dotted keys (of sections too) whose value is unusable
  std::vector<std::string> faults;
};

// Applies what the layer names to `config`, on top of what is there. A faulty value leaves its key
// as it was. The faults come in the order of their lines.
void read_layer(const ConfigLayer& layer, Config& config, ReadState& state);

// The keys of a file that are not part of the Config: `include`, and `$schema` for editors.
[[nodiscard]] bool is_file_key(const std::string& key);

}  // namespace transnormer
