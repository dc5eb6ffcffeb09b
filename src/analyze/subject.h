// What is analysed: a model, trained or not, and windows of text for it.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/checkpoint.h"
#include "config/config.h"
#include "data/prepare.h"
#include "model/attention/abilities.h"
#include "model/transnormer.h"

namespace transnormer {

// A window: int64 [1, time] each, on the model's device.
struct Window {
  at::Tensor inputs;
  at::Tensor targets;  // the next tokens
};

struct Subject {
  Config config;
  std::shared_ptr<TransNormer> model;
  // A model of another config with the same weights, as far as names and sizes are the same.
  std::function<std::shared_ptr<TransNormer>(const ModelConfig&)> rebuild;
  std::vector<Window> windows;
  std::int64_t length = 0;        // of the longest window, in tokens
  bool trained = false;           // the weights
  std::string text;               // "split valid", "random tokens"
  std::filesystem::path metrics;  // the run's metrics.jsonl; empty where there is none
};

struct SubjectOptions {
  std::optional<Split> split = std::nullopt;  // nothing: valid
  std::int64_t windows = 8;                   // at most
  at::Device device = at::kCPU;
};

// With the checkpoint's weights, tokenizer and texts. The windows are whole ones of
// data.tokens_per_sample, evenly taken over the split; a split shorter than one is one by itself.
// Throws UserError where the split is not there, or has fewer than two tokens.
[[nodiscard]] Subject subject_of(const Checkpoint& checkpoint, const SubjectOptions& options);

// With initial weights by train.seed; where no split is asked for and the config has no texts, or
// none of its files for `valid` is there, on random tokens by the same seed.
[[nodiscard]] Subject subject_of(const Config& config, const SubjectOptions& options);

// Throws UserError where the matrices of one layer do not fit into the memory.
void require_room_for_matrices(const Subject& subject);

// The attention of a layer, and how it makes weights of its scores: as its settings say, or their
// key `denominator`, by which an attention's weights are s / sum s or s itself.
[[nodiscard]] const AttentionConfig& attention_of(const ModelConfig& model, std::int64_t layer);
[[nodiscard]] Weighting weighting_of(const ModelConfig& model, std::int64_t layer);

}  // namespace transnormer
