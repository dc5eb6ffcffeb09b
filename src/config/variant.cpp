#include "config/variant.h"

#include <algorithm>
#include <array>
#include <stdexcept>
#include <string_view>

#include "config/json_tree.h"
#include "config/listing.h"
#include "config/reader.h"

namespace transnormer {
namespace {

constexpr std::array<std::string_view, 8> kParts{
    "model.early",   "model.late",           "model.norm", "model.ffn",
    "model.ffn_dim", "model.ffn_activation", "model.lrpe", "model.early_layers"};

// In what a variant differs from t2, as a config says it: which settings an attention has is
// declared above this layer.
constexpr const char* kT1 = R"({"model": {
  "early": {"attention": "diag", "score": "relu", "output_norm": "srms"},
  "late": {"attention": "norm", "kernel": "elu"}}})";
constexpr const char* kTransformer = R"({"model": {
  "early": {"attention": "softmax"}, "late": {"attention": "softmax"},
  "norm": "layer", "ffn": "mlp", "ffn_activation": "relu", "lrpe": false}})";

void read_parts(const char* parts, ModelConfig& model) {
  ConfigLayer layer{.name = "model.variant", .directory = "/", .root = {}, .faults = {}};
  layer.root = parse_json(parts, layer.name, layer.faults);
  ReadState state;
  Config config;
  config.model = model;
  read_layer(layer, config, state);
  if (!state.faults.empty()) {
    throw std::logic_error(state.faults.front());
  }
  model = config.model;
}

}  // namespace

bool is_part(const std::string& key) {
  return std::any_of(kParts.begin(), kParts.end(), [&](std::string_view part) {
    return key == part || key.starts_with(std::string(part) + ".");
  });
}

void reset_parts(ModelConfig& model, ModelVariant variant) {
  const ModelConfig t2;
  model.early = t2.early;
  model.late = t2.late;
  model.norm = t2.norm;
  model.ffn = t2.ffn;
  model.ffn_dim = t2.ffn_dim;
  model.ffn_activation = t2.ffn_activation;
  model.lrpe = t2.lrpe;
  model.early_layers = t2.early_layers;
  if (variant == ModelVariant::t1) {
    read_parts(kT1, model);
  } else if (variant == ModelVariant::transformer) {
    read_parts(kTransformer, model);
  }
}

std::vector<Contradiction> contradictions(const Config& config) {
  if (config.model.variant == ModelVariant::custom) {
    return {};
  }
  Config fixed = config;
  reset_parts(fixed.model, config.model.variant);
  if (fixed.model.resolved_ffn_dim() == config.model.resolved_ffn_dim()) {
    fixed.model.ffn_dim = config.model.ffn_dim;
  }
  if (fixed.model.resolved_early_layers() == config.model.resolved_early_layers()) {
    fixed.model.early_layers = config.model.early_layers;
  }
  std::vector<Contradiction> found;
  const std::vector<FieldRow> rows = list_fields(config);
  for (const FieldRow& wanted : list_fields(fixed)) {
    // Settings of an attention that is the wrong one altogether are not there to be compared.
    const FieldRow* row = find_row(rows, wanted.key);
    if (row != nullptr && row->alternative == wanted.alternative && row->value != wanted.value) {
      found.push_back({wanted.key, row->value, wanted.value});
    }
  }
  return found;
}

}  // namespace transnormer
