#include "config/load.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "config/check.h"
#include "config/json_tree.h"
#include "config/listing.h"
#include "config/names.h"
#include "config/reader.h"
#include "config/variant.h"
#include "util/error.h"
#include "util/file.h"

namespace transnormer {
namespace {

namespace fs = std::filesystem;
using Kind = JsonNode::Kind;

constexpr const char* kSetName = "--set";

// The layers from the lowest to the highest, and the faults that kept one from being read.
struct Layers {
  std::vector<ConfigLayer> files;
  std::vector<ConfigLayer> sets;
  std::vector<std::string> faults;
};

// Parses into a layer; nothing if it is no JSON object.
std::optional<ConfigLayer> parse_layer(const std::string& text, const std::string& name,
                                       const fs::path& directory,
                                       std::vector<std::string>& faults) {
  try {
    ConfigLayer layer{name, directory, {}, {}};
    layer.root = parse_json(text, name, layer.faults);
    if (layer.root.kind == Kind::object) {
      return layer;
    }
    faults.push_back(name + ": expected an object of sections, got " + layer.root.shown());
  } catch (const UserError& error) {
    faults.insert(faults.end(), error.faults().begin(), error.faults().end());
  }
  return std::nullopt;
}

// The files that a layer includes, in their order.
std::vector<std::string> included_files(const ConfigLayer& layer,
                                        std::vector<std::string>& faults) {
  const JsonNode* include = layer.root.find("include");
  if (include == nullptr) {
    return {};
  }
  std::vector<std::string> names;
  const auto add = [&](const JsonNode& node) {
    if (node.kind == Kind::text && !node.text.empty()) {
      names.push_back(node.text);
    } else {
      faults.push_back(layer.name + ":" + std::to_string(include->line) +
                       ": include: expected the path of a config or a list of them, got " +
                       node.shown());
    }
  };
  if (include->kind == Kind::list) {
    std::for_each(include->items.begin(), include->items.end(), add);
  } else {
    add(*include);
  }
  return names;
}

// Adds the layers of `file` after those of the files it includes. `open` holds the files that wait
// for this one.
void collect_file(const fs::path& file, std::vector<fs::path>& open, Layers& layers) {
  const fs::path absolute = fs::absolute(file).lexically_normal();
  std::string text;
  try {
    text = read_file(file);
  } catch (const UserError& error) {
    layers.faults.emplace_back(error.what());
    return;
  }
  std::optional<ConfigLayer> layer =
      parse_layer(text, file.string(), absolute.parent_path(), layers.faults);
  if (!layer) {
    return;
  }
  open.push_back(fs::weakly_canonical(absolute));
  for (const std::string& name : included_files(*layer, layers.faults)) {
    const fs::path included = (file.parent_path() / name).lexically_normal();
    const auto same = std::find(open.begin(), open.end(), fs::weakly_canonical(included));
    if (same != open.end()) {
      layers.faults.push_back(file.string() + ": include: " + printable(name, true) +
                              " includes this file again; expected no cycle");
      continue;
    }
    collect_file(included, open, layers);
  }
  open.pop_back();
  layers.files.push_back(std::move(*layer));
}

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

std::map<std::string, std::string> origins_of(const Config& config, const ReadState& state) {
  const bool variant_named = state.origins.contains("model.variant");
  std::map<std::string, std::string> origins;
  for (const FieldRow& row : list_fields(config)) {
    const auto named = state.origins.find(row.key);
    if (named != state.origins.end()) {
      origins[row.key] = named->second.source;
    } else {
      origins[row.key] = variant_named && is_part(row.key) ? "model.variant" : "default";
    }
  }
  return origins;
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
  if (config.run_name.empty()) {
    config.run_name = default_name;
  }
  config.data.cache_dir = fs::absolute(config.data.cache_dir).lexically_normal().string();
  if (!is_utf8(default_name) && config.run_name == default_name) {
    layers.faults.emplace_back("run_name: the file's name is not UTF-8; expected a name to be set");
  }
  if (!is_utf8(config.data.cache_dir)) {
    layers.faults.emplace_back("data.cache_dir: the working directory's path is not UTF-8");
  }
  if (layers.faults.empty()) {  // else what is missing would show as contradictions
    check_config(config, state, loaded.warnings);
  }

  std::vector<std::string> faults;
  for (const auto* some : {&layers.faults, &state.faults}) {
    for (const std::string& fault : *some) {  // a file that is included twice reports once
      if (std::find(faults.begin(), faults.end(), fault) == faults.end()) {
        faults.push_back(fault);
      }
    }
  }
  if (!faults.empty()) {
    throw UserError(faults);
  }
  loaded.origins = origins_of(config, state);
  return loaded;
}

}  // namespace

LoadedConfig load_config(const fs::path& file, const std::vector<std::string>& sets) {
  Layers layers;
  std::vector<fs::path> open;
  collect_file(file, open, layers);
  return resolve(std::move(layers), file.stem().string(), sets);
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
