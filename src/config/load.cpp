#include "config/load.h"

#include <algorithm>
#include <optional>
#include <unordered_set>
#include <utility>

#include "config/check.h"
#include "config/fields.h"
#include "config/idle.h"
#include "config/json_tree.h"
#include "config/layers.h"
#include "config/listing.h"
#include "config/names.h"
#include "config/reader.h"
#include "config/variant.h"
#include "util/error.h"
#include "util/units.h"

namespace transnormer {
namespace {

namespace fs = std::filesystem;
using Kind = JsonNode::Kind;

constexpr const char* kSetName = "--set";
constexpr const char* kLineEndKey = "data.line_end";
constexpr std::size_t kMostFaults = 100;  // that anyone reads

// The layers from the lowest to the highest, and the faults that kept one from being read.
struct Layers {
  std::vector<ConfigLayer> files;
  std::vector<ConfigLayer> sets;
  std::vector<std::string> faults;
};

void forget_lines(JsonNode& node) {
  node.line = 0;
  for (JsonNode& item : node.items) {
    forget_lines(item);
  }
}

// A section, or a union as model.early: its value is an object, that of any other key never is.
bool is_section(const std::string& key) {
  const std::vector<FieldRow> rows = list_all_fields();
  return std::any_of(rows.begin(), rows.end(),
                     [&](const FieldRow& row) { return row.key.starts_with(key + "."); });
}

// "a.b=v" as the object {"a": {"b": v}}.
void collect_set(const std::string& set, Layers& layers) {
  const std::size_t equals = set.find('=');
  if (equals == std::string::npos || equals == 0) {
    layers.faults.push_back(std::string(kSetName) + " " + printable(set, false) +
                            ": expected KEY=VALUE, such as model.dim=256");
    return;
  }
  const std::string key = set.substr(0, equals);
  ConfigLayer layer{kSetName, fs::current_path(), {}, {}};
  JsonNode node;
  node.kind = Kind::raw;
  node.text = set.substr(equals + 1);
  if (node.text.starts_with('{') && is_section(key)) {
    try {
      node = parse_json(node.text, std::string(kSetName) + " " + key, layer.faults);
      forget_lines(node);
    } catch (const UserError& error) {
      layers.faults.emplace_back(error.what());
      return;
    }
  }
  constexpr std::ptrdiff_t kDeepest = 8;  // no key has so many parts
  if (is_file_key(key) || std::count(key.begin(), key.end(), '.') > kDeepest) {
    layers.faults.push_back(std::string(kSetName) + ": " + printable(key, false) +
                            ": cannot be set; expected a key of the resolved config");
    return;
  }
  for (std::size_t end = key.size(); end != std::string::npos;) {
    const std::size_t dot = end == 0 ? std::string::npos : key.rfind('.', end - 1);
    const std::size_t begin = dot == std::string::npos ? 0 : dot + 1;
    node.key = key.substr(begin, end - begin);
    JsonNode parent;
    parent.kind = Kind::object;
    parent.items.push_back(std::move(node));
    node = std::move(parent);
    end = dot;
  }
  layer.root = std::move(node);
  layers.sets.push_back(std::move(layer));
}

// The variant that the last of the layers to name one names.
std::optional<ModelVariant> named_variant(const std::vector<ConfigLayer>& layers) {
  std::optional<ModelVariant> variant;
  for (const ConfigLayer& layer : layers) {
    const JsonNode* model = layer.root.find("model");
    const JsonNode* named = model == nullptr ? nullptr : model->find("variant");
    for (const Named<ModelVariant>& choice : kModelVariantNames) {
      if (named != nullptr && (named->kind == Kind::text || named->kind == Kind::raw) &&
          named->text == choice.name) {
        variant = choice.value;
      }
    }
  }
  return variant;
}

void read_layers(const std::vector<ConfigLayer>& layers, Config& config, ReadState& state) {
  for (const ConfigLayer& layer : layers) {
    read_layer(layer, config, state);
  }
}

// A variant from `--set` throws out the parts that files name.
void apply_set_variant(ModelVariant variant, Config& config, ReadState& state,
                       std::vector<std::string>& warnings) {
  const ModelConfig before = config.model;
  reset_parts(config.model, variant);
  std::erase_if(state.origins, [](const auto& origin) { return is_part(origin.first); });
  std::erase_if(state.faulty, [](const std::string& key) { return is_part(key); });
  if (variant == ModelVariant::custom && before.variant != variant && before != config.model) {
    warnings.push_back(std::string(kSetName) +
                       ": model.variant: \"custom\" starts from the parts of t2; those of \"" +
                       to_string(before.variant) + "\" must be named to be kept");
  }
}

// Byte-level BPE has tokens for line ends.
void set_line_end(Config& config, const ReadState& state) {
  if (config.tokenizer.type == TokenizerType::bpe && !state.origins.contains(kLineEndKey)) {
    config.data.line_end = LineEnd::keep;
  }
}

std::map<std::string, std::string> origins_of(const Config& config, const ReadState& state) {
  const bool variant_named = state.origins.contains("model.variant");
  std::map<std::string, std::string> origins;
  for (const FieldRow& row : list_fields(config)) {
    const auto named = state.origins.find(row.key);
    if (named != state.origins.end()) {
      origins[row.key] = named->second.source;
    } else if (row.key == kLineEndKey && config.tokenizer.type == TokenizerType::bpe) {
      origins[row.key] = "tokenizer.type";
    } else {
      origins[row.key] = variant_named && is_part(row.key) ? "model.variant" : "default";
    }
  }
  return origins;
}

// Throws them, if there are any: each once, and no more than anyone reads.
void throw_faults(const std::vector<std::string>& of_layers,
                  const std::vector<std::string>& of_values) {
  std::vector<std::string> faults;
  std::unordered_set<std::string> seen;
  std::int64_t more = 0;
  for (const auto* some : {&of_layers, &of_values}) {
    for (const std::string& fault : *some) {
      if (!seen.insert(fault).second) {
        continue;
      }
      if (faults.size() < kMostFaults) {
        faults.push_back(fault);
      } else {
        ++more;
      }
    }
  }
  if (more > 0) {
    faults.push_back("and " + format_count(more) + " more faults");
  }
  if (!faults.empty()) {
    throw UserError(faults);
  }
}

// An unset name is that of the file, if it can be.
void name_run(const std::string& stem, Config& config, std::vector<std::string>& faults) {
  if (!config.run_name.empty()) {
    return;
  }
  config.run_name = stem;
  if (const std::string how = misspelled(stem, TextKind::name); !how.empty()) {
    faults.push_back("run_name: not set, and the file's name gives " + printable(stem, true) +
                     "; set it (--set run_name=NAME) to a name " + how);
  }
}

LoadedConfig resolve(Layers layers, const std::string& default_name,
                     const std::vector<std::string>& sets) {
  for (const std::string& set : sets) {
    collect_set(set, layers);
  }
  LoadedConfig loaded;
  Config& config = loaded.config;
  ReadState state;
  reset_parts(config.model, named_variant(layers.files).value_or(config.model.variant));
  read_layers(layers.files, config, state);
  if (const std::optional<ModelVariant> variant = named_variant(layers.sets)) {
    apply_set_variant(*variant, config, state, loaded.warnings);
  }
  read_layers(layers.sets, config, state);
  set_line_end(config, state);
  if (!layers.files.empty()) {  // else there is no config to name a run
    name_run(default_name, config, layers.faults);
  }
  config.data.cache_dir = fs::absolute(config.data.cache_dir).lexically_normal().string();
  if (!is_utf8(config.data.cache_dir)) {
    layers.faults.emplace_back("data.cache_dir: the working directory's path is not UTF-8");
  }
  if (layers.faults.empty()) {  // else what is missing would show as contradictions
    check_config(config, state, loaded.warnings);
    const std::string own_file = layers.files.empty() ? "" : layers.files.back().name;
    for (std::string& idle : idle_keys(config, state, own_file)) {
      loaded.warnings.push_back(std::move(idle));
    }
  }
  throw_faults(layers.faults, state.faults);
  loaded.origins = origins_of(config, state);
  return loaded;
}

}  // namespace

LoadedConfig load_config(const fs::path& file, const std::vector<std::string>& sets) {
  Layers layers;
  layers.files = collect_files(file, layers.faults);
  return resolve(std::move(layers), is_stream(file) ? "" : file.stem().string(), sets);
}

LoadedConfig parse_config(const std::string& json, const std::string& name,
                          const std::vector<std::string>& sets) {
  Layers layers;
  if (std::optional<ConfigLayer> layer =
          parse_layer(json, name, fs::current_path(), layers.faults)) {
    if (layer->root.find("include") != nullptr) {
      layers.faults.push_back(name + ": include: only a file can include another");
    }
    layers.files.push_back(std::move(*layer));
  }
  return resolve(std::move(layers), fs::path(name).stem().string(), sets);
}

}  // namespace transnormer
