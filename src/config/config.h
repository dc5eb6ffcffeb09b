// The typed configuration of a run. Plain values with their defaults; what a key means, its range,
// unit and line of help are declared once, in config/fields.h, and reading, writing, `--set`, the
// schema and the documentation follow from there.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "config/union.h"
#include "util/log_level.h"

namespace transnormer {

enum class ModelVariant { t1, t2, transformer, custom };
enum class FfnKind { glu, mlp };
enum class Activation { silu, relu, gelu, none };
enum class NormKind { none, srms, rms, layer };  // `none` only as an attention's output norm
enum class EmbedNorm { automatic, none, srms, rms, layer };  // "auto" in files
enum class NormPlacement { pre, post };
enum class PositionKind { sinusoidal, learned, none };
enum class ScoreKind { softmax, relu };
enum class FeatureMap { elu1, elu, relu, silu, exp };

// Told apart by the key `attention`; model/attention/ has their settings.
using AttentionConfig = UnionOf<&attentions>;
// Told apart by the key `name`; optim/ has their settings.
using OptimizerRule = UnionOf<&optimizers>;

struct ModelConfig {
  ModelVariant variant = ModelVariant::t2;
  std::int64_t layers = 6;
  std::int64_t dim = 512;
  std::int64_t heads = 8;
  FfnKind ffn = FfnKind::glu;
  std::int64_t ffn_dim = 0;
  Activation ffn_activation = Activation::silu;
  std::int64_t early_layers = -1;
  AttentionConfig early = "diag";
  AttentionConfig late = "norm";
  NormKind norm = NormKind::srms;
  double norm_eps = 1e-6;
  NormPlacement norm_placement = NormPlacement::pre;
  EmbedNorm embed_norm = EmbedNorm::automatic;
  PositionKind position = PositionKind::sinusoidal;
  bool lrpe = true;
  double dropout = 0.1;
  double attention_dropout = 0;
  bool tie_embeddings = true;
  bool output_bias = false;
  std::int64_t vocab_size = 0;
  bool causal = true;

  // What 0 and -1 stand for.
  [[nodiscard]] std::int64_t head_dim() const { return dim / heads; }
  [[nodiscard]] std::int64_t resolved_early_layers() const {
    return early_layers < 0 ? layers / 2 : early_layers;
  }
  [[nodiscard]] NormKind resolved_embed_norm() const {
    switch (embed_norm) {
      case EmbedNorm::automatic:
        return norm_placement == NormPlacement::post ? norm : NormKind::none;
      case EmbedNorm::none:
        return NormKind::none;
      case EmbedNorm::srms:
        return NormKind::srms;
      case EmbedNorm::rms:
        return NormKind::rms;
      case EmbedNorm::layer:
        break;
    }
    return NormKind::layer;
  }
  [[nodiscard]] std::int64_t resolved_ffn_dim() const {
    return ffn_dim > 0 ? ffn_dim : (ffn == FfnKind::glu ? 8 * dim / 3 : 4 * dim);
  }
  bool operator==(const ModelConfig&) const = default;
};

enum class SampleBreak { none };
enum class LineEnd { eos, none, keep };

struct DataConfig {
  // Each a path, a glob or a list of them; empty: the split is not there.
  std::vector<std::string> train;
  std::vector<std::string> valid;
  std::vector<std::string> test;
  std::string cache_dir = "runs/cache";
  std::int64_t tokens_per_sample = 512;
  SampleBreak sample_break = SampleBreak::none;
  LineEnd line_end = LineEnd::eos;
  bool strip_cr = false;
  double holdout = 0;
  bool operator==(const DataConfig&) const = default;
};

enum class TokenizerType { word, sentencepiece, bpe };
enum class SentencePieceModel { unigram, bpe };

struct TokenizerConfig {
  TokenizerType type = TokenizerType::word;
  std::string path;
  std::int64_t vocab_size = 0;
  std::int64_t min_count = 1;
  std::int64_t pad_to_multiple = 8;
  SentencePieceModel model_type = SentencePieceModel::unigram;
  bool byte_fallback = true;
  std::int64_t sample_lines = 0;
  bool operator==(const TokenizerConfig&) const = default;
};

struct OptimizerConfig {
  OptimizerRule rule = "adamw";  // its settings stand beside the others, which any optimizer has
  double lr = 5e-4;
  double weight_decay = 0.01;
  double clip_norm = 0;
  std::vector<std::string> no_decay;  // globs over the names of parameters
  double ema = 0;
  bool operator==(const OptimizerConfig&) const = default;
};

enum class ScheduleKind { inverse_sqrt, cosine, linear, polynomial, constant, wsd };

struct ScheduleConfig {
  ScheduleKind name = ScheduleKind::inverse_sqrt;
  std::int64_t warmup_steps = 8000;
  double warmup_init_lr = 1e-7;
  double min_lr = 0;
  double power = 1;
  std::int64_t decay_steps = 0;
  bool operator==(const ScheduleConfig&) const = default;
};

enum class Precision { fp32, bf16, fp16 };
enum class DeviceChoice { automatic, cpu, cuda };  // "auto" in files
enum class NonfinitePolicy { skip, stop };

struct TrainConfig {
  std::int64_t steps = 100000;
  std::int64_t max_epochs = 0;
  double max_hours = 0;
  std::int64_t global_batch_size = 128;
  std::int64_t micro_batch_size = 0;
  std::string init_from;
  std::string objective = "causal";  // one of objective_names()
  Precision precision = Precision::fp32;
  DeviceChoice device = DeviceChoice::automatic;
  std::int64_t seed = 1;
  std::int64_t threads = 0;
  bool deterministic = false;
  NonfinitePolicy nonfinite = NonfinitePolicy::skip;
  std::int64_t nonfinite_limit = 10;
  std::int64_t divergence_retries = 0;
  bool activation_checkpointing = false;

  [[nodiscard]] std::int64_t resolved_micro_batch_size() const {
    return micro_batch_size > 0 ? micro_batch_size : global_batch_size;
  }
  bool operator==(const TrainConfig&) const = default;
};

struct ValidationConfig {
  std::int64_t every = 1000;
  std::int64_t batch_size = 0;
  std::int64_t patience = 0;
  std::int64_t context_window = 0;
  std::int64_t max_tokens = 0;
  std::vector<std::string> prompts;
  bool operator==(const ValidationConfig&) const = default;
};

struct CheckpointConfig {
  std::int64_t every = 1000;
  std::int64_t keep_last = 2;
  bool keep_best = true;
  std::int64_t keep_every = 0;
  bool operator==(const CheckpointConfig&) const = default;
};

struct LogConfig {
  std::int64_t every = 50;
  std::int64_t grad_stats_every = 50;
  std::int64_t grad_histograms_every = 0;
  bool tensorboard = true;
  LogLevel level = LogLevel::info;
  bool operator==(const LogConfig&) const = default;
};

enum class DistributedBackend { automatic, gloo, nccl };
enum class GradientPrecision { fp32, bf16 };

struct DistributedConfig {
  DistributedBackend backend = DistributedBackend::automatic;
  double timeout_s = 600;
  double bucket_mb = 25;
  GradientPrecision gradient_precision = GradientPrecision::fp32;
  bool shard_optimizer = false;
  std::int64_t sequence_parallel = 1;
  bool operator==(const DistributedConfig&) const = default;
};

struct Config {
  std::string run_name;  // the file's stem, unless told
  ModelConfig model;
  DataConfig data;
  TokenizerConfig tokenizer;
  OptimizerConfig optimizer;
  ScheduleConfig schedule;
  TrainConfig train;
  ValidationConfig validation;
  CheckpointConfig checkpoint;
  LogConfig log;
  DistributedConfig distributed;
  bool operator==(const Config&) const = default;
};

}  // namespace transnormer
