#include "export/export.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <string_view>

#include "checkpoint/whole_directory.h"
#include "config/load.h"
#include "config/names.h"
#include "export/modeling.h"
#include "model/model_size.h"
#include "model/transnormer.h"
#include "util/error.h"
#include "util/signal.h"

namespace transnormer {
namespace fs = std::filesystem;
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kModeling = "modeling_transnormer.py";
constexpr const char* kConfigOfExport = "config.json";
constexpr const char* kWeights = "model.safetensors";
constexpr const char* kGeneration = "generation_config.json";
constexpr const char* kTokenizerConfig = "tokenizer_config.json";

// Of modeling_transnormer.py.
constexpr std::array<std::string_view, 4> kKnown{"diag", "linear", "norm", "softmax"};

const WholeDirectoryKind& export_kind() {
  static const WholeDirectoryKind kKind{
      .noun = "an export",
      .files = {.manifest = "transnormer.json",
                .files = {kModeling, kConfigOfExport, kWeights, kGeneration, kTokenizerConfig,
                          "tokenizer.txt", "tokenizer.model", "tokenizer.json"}},
      .is_of_kind = [](const Manifest&) { return true; }};
  return kKind;
}

std::string known_attentions() {
  std::string names;
  for (const std::string_view name : kKnown) {
    names += (names.empty() ? "" : ", ") + std::string(name);
  }
  return names;
}

// The id of the piece of this name, or null. Dictionaries and most models of sentencepiece have it.
Json padding_id(const Tokenizer& tokenizer) {
  for (TokenId id = 0; id < std::min<std::int64_t>(tokenizer.size(), 4); ++id) {
    if (tokenizer.piece(id) == "<pad>") {
      return id;
    }
  }
  return nullptr;
}

Json id_or_null(const std::optional<TokenId>& id) {
  return id ? Json(*id) : Json(nullptr);
}

// Keys of the model section beside those that transformers and the tokenizer need. What 0, -1 and
// "auto" stand for is filled in.
Json config_of(const ExportContent& content) {
  const Config& config = content.config;
  const Tokenizer& tokenizer = content.tokenizer;
  Json json{{"model_type", "transnormer"},
            {"architectures", {"TransNormerForCausalLM"}},
            {"auto_map",
             {{"AutoConfig", "modeling_transnormer.TransNormerConfig"},
              {"AutoModelForCausalLM", "modeling_transnormer.TransNormerForCausalLM"}}},
            {"dtype", "float32"}};
  const Json resolved = Json::parse(config_to_json(config));
  json.update(resolved.at("model"));
  json["early_layers"] = config.model.resolved_early_layers();
  json["ffn_dim"] = config.model.resolved_ffn_dim();
  json["embed_norm"] = name_of<NormKind>(kOutputNormNames, config.model.resolved_embed_norm());
  json["vocab_size"] = model_size(config, &tokenizer).vocab_size;
  json["tie_word_embeddings"] = config.model.tie_embeddings;
  json["tokens_per_sample"] = config.data.tokens_per_sample;
  json["line_end"] = resolved.at("data").at("line_end");
  json["strip_cr"] = config.data.strip_cr;
  json["bos_token_id"] = tokenizer.first_input();
  json["eos_token_id"] = id_or_null(tokenizer.end_id());
  json["pad_token_id"] = padding_id(tokenizer);
  json["unk_token_id"] = tokenizer.unknown_id();
  return json;
}

// No end token: texts of many lines go on behind it, as `generate` does.
Json generation_config(const Json& config) {
  return {{"bos_token_id", config.at("bos_token_id")},
          {"pad_token_id", config.at("pad_token_id")},
          {"use_cache", false}};
}

Json tokenizer_config(const Tokenizer& tokenizer, const Json& config) {
  Json json{
      {"tokenizer_class", "TransNormerTokenizer"},
      {"auto_map", {{"AutoTokenizer", {"modeling_transnormer.TransNormerTokenizer", nullptr}}}},
      {"line_end", config.at("line_end")},
      {"strip_cr", config.at("strip_cr")}};
  for (const char* special : {"bos", "eos", "pad", "unk"}) {
    const Json& id = config.at(std::string(special) + "_token_id");
    if (!id.is_null()) {
      json[std::string(special) + "_token"] = tokenizer.piece(id.get<TokenId>());
    }
  }
  return json;
}

std::string text_of(const Json& json) {
  return json.dump(2) + '\n';
}

}  // namespace

void require_exportable(const ModelConfig& model) {
  std::vector<std::string> faults;
  const auto look_at = [&](const char* key, const AttentionConfig& attention, bool is_used) {
    if (is_used && std::ranges::find(kKnown, attention.name()) == kKnown.end()) {
      faults.push_back(std::string("model.") + key + ".attention: \"" + attention.name() +
                       "\" cannot be exported; " + kModeling + " knows " + known_attentions());
    }
  };
  const std::int64_t early = model.resolved_early_layers();
  look_at("early", model.early, early > 0);
  look_at("late", model.late, early < model.layers);
  if (!model.causal) {
    faults.emplace_back(
        "model.causal: false, a model that sees what comes after, cannot be exported; only those "
        "that continue text");
  }
  if (!faults.empty()) {
    throw UserError(faults);
  }
}

fs::path write_export(const ExportContent& content, const fs::path& out) {
  require_exportable(content.config.model);
  WholeDirectory directory(out, export_kind());
  DirectoryWriter& writer = directory.writer();
  const Json config = config_of(content);
  writer.write_tensors(kWeights, content.weights);
  throw_if_stopped();
  writer.write_bytes(kConfigOfExport, text_of(config));
  writer.write_bytes(kGeneration, text_of(generation_config(config)));
  writer.write_bytes(kTokenizerConfig, text_of(tokenizer_config(content.tokenizer, config)));
  writer.write_bytes(content.tokenizer.file_name(), content.tokenizer.serialized());
  writer.write_bytes(kModeling, modeling_source());
  directory.finish({.step = content.step, .tokens = content.tokens});
  return directory.path();
}

fs::path export_checkpoint(const Checkpoint& checkpoint, Weights weights, const fs::path& out) {
  require_exportable(checkpoint.config().model);
  const auto model = checkpoint.load_model(at::kCPU, weights);
  require_finite_weights(*model, checkpoint.path().string());
  return write_export({.config = checkpoint.config(),
                       .tokenizer = *checkpoint.tokenizer(),
                       .weights = named_tensors(*model),
                       .step = checkpoint.state().step,
                       .tokens = checkpoint.state().tokens},
                      out);
}

}  // namespace transnormer
