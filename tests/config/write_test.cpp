#include <map>

#include "config/support.h"
#include "optim/muon.h"

namespace transnormer {
namespace {

using testing::HasSubstr;

// The shape that is promised: every key with its default, in this order.
constexpr const char* kDefaults = R"({
  "run_name": "",
  "model": {
    "variant": "t2", "layers": 6, "dim": 512, "heads": 8, "ffn": "glu", "ffn_dim": 0,
    "ffn_activation": "silu", "early_layers": -1,
    "early": {"attention": "diag", "score": "softmax", "block": 64, "output_norm": "none"},
    "late": {"attention": "norm", "kernel": "elu1", "output_norm": "srms",
             "decay": "none", "gate": "none"},
    "norm": "srms", "norm_eps": 1e-06, "norm_placement": "pre", "embed_norm": "auto",
    "position": "sinusoidal",
    "lrpe": true, "dropout": 0.1, "attention_dropout": 0.0, "tie_embeddings": true, "output_bias": false,
    "vocab_size": 0, "causal": true
  },
  "data": {
    "train": [], "valid": [], "test": [], "cache_dir": "runs/cache", "tokens_per_sample": 512,
    "sample_break": "none", "line_end": "eos", "strip_cr": false, "holdout": 0.0
  },
  "tokenizer": {
    "type": "word", "path": "", "vocab_size": 0, "min_count": 1, "pad_to_multiple": 8,
    "model_type": "unigram", "byte_fallback": true, "sample_lines": 0
  },
  "optimizer": {
    "name": "adamw", "betas": [0.9, 0.98], "eps": 1e-08, "lr": 0.0005, "weight_decay": 0.01,
    "clip_norm": 0.0, "no_decay": [], "ema": 0.0
  },
  "schedule": {
    "name": "inverse_sqrt", "warmup_steps": 8000, "warmup_init_lr": 1e-07, "min_lr": 0.0,
    "power": 1.0, "decay_steps": 0
  },
  "train": {
    "steps": 100000, "max_epochs": 0, "max_hours": 0.0, "global_batch_size": 128, "micro_batch_size": 0,
    "init_from": "",
    "objective": "causal", "precision": "fp32", "device": "auto", "seed": 1, "threads": 0,
    "deterministic": false, "nonfinite": "skip", "nonfinite_limit": 10, "divergence_retries": 0,
    "activation_checkpointing": false
  },
  "validation": {"every": 1000, "batch_size": 0, "patience": 0, "context_window": 0,
                 "max_tokens": 0, "prompts": []},
  "checkpoint": {"every": 1000, "keep_last": 2, "keep_best": true, "keep_every": 0},
  "log": {
    "every": 50, "grad_stats_every": 50, "grad_histograms_every": 0, "tensorboard": true,
    "level": "info"
  },
  "distributed": {
    "backend": "auto", "timeout_s": 600.0, "bucket_mb": 25.0, "gradient_precision": "fp32",
    "shard_optimizer": false, "sequence_parallel": 1
  }
})";

std::string without_spaces(std::string text) {
  std::erase_if(text, [](char c) { return c == ' ' || c == '\n'; });
  return text;
}

TEST(ConfigJson, SpellsOutEveryKeyInDeclaredOrder) {
  EXPECT_EQ(without_spaces(config_to_json(Config{})), without_spaces(kDefaults));
}

TEST(ConfigWithOrigins, IsAConfigThatSaysWhereEachValueCameFrom) {
  const LoadedConfig loaded = parse_config(R"({"model": {"layers": 3}})", "x.json",
                                           {"model.variant=t1", "data.train=[\"a\", \"b\"]"});
  const std::string text = config_with_origins(loaded);
  EXPECT_EQ(config_to_json(config_of(text)), config_to_json(loaded.config));
  const auto comment_of = [&](const std::string& key) {
    const std::size_t begin = text.find("\"" + key + "\": ");
    const std::string line = text.substr(begin, text.find('\n', begin) - begin);
    return line.substr(line.find("// "));
  };
  EXPECT_EQ(comment_of("layers"), "// x.json");
  EXPECT_EQ(comment_of("variant"), "// --set");
  EXPECT_EQ(comment_of("score"), "// model.variant");
  EXPECT_EQ(comment_of("bucket_mb"), "// default");
}

TEST(ConfigChanges, NameEachKeyThatDiffers) {
  Config before = config_of("{}");
  EXPECT_TRUE(config_changes(before, before).empty());
  Config after = before;
  after.train.steps = 5;
  after.model.early = DiagAttentionConfig{.block = 32};
  after.optimizer.rule = AdamWConfig{.betas = {0.8, 0.9}};
  const std::vector<ConfigChange> changes = config_changes(before, after);
  ASSERT_EQ(changes.size(), 3U);
  EXPECT_EQ(changes[0].key, "model.early.block");
  EXPECT_EQ(changes[0].before, "64");
  EXPECT_EQ(changes[0].after, "32");
  EXPECT_EQ(changes[0].on_resume, OnResume::refuse);
  EXPECT_EQ(changes[1].key, "optimizer.betas");
  EXPECT_EQ(changes[1].before, "[0.9,0.98]");
  EXPECT_EQ(changes[1].on_resume, OnResume::warn);
  EXPECT_EQ(changes[2].key, "train.steps");
  EXPECT_EQ(changes[2].on_resume, OnResume::silent);
}

TEST(ConfigChanges, OfTheKindOfAnAttentionAreRefused) {
  Config before = config_of("{}");
  Config after = before;
  after.model.late = "softmax";
  const std::vector<ConfigChange> changes = config_changes(before, after);
  ASSERT_EQ(changes.size(), 1U);
  EXPECT_EQ(changes[0].key, "model.late.attention");
  EXPECT_EQ(changes[0].after, "\"softmax\"");
  EXPECT_EQ(changes[0].on_resume, OnResume::refuse);
}

// What a resume may do with every key, as the design lists it.
TEST(ConfigChanges, AreSilentWarnedOrRefusedAsPromised) {
  Config other;
  other.run_name = "other";
  other.model = {
      .variant = ModelVariant::custom,
      .layers = 1,
      .dim = 1,
      .heads = 1,
      .ffn = FfnKind::mlp,
      .ffn_dim = 1,
      .ffn_activation = Activation::relu,
      .early_layers = 1,
      .early = DiagAttentionConfig{ScoreKind::relu, 1, NormKind::srms},
      .late = NormAttentionConfig{FeatureMap::elu, NormKind::rms, DecayKind::fixed, GateKind::silu},
      .norm = NormKind::rms,
      .norm_eps = 1,
      .norm_placement = NormPlacement::post,
      .embed_norm = EmbedNorm::rms,
      .position = PositionKind::none,
      .lrpe = false,
      .dropout = 0,
      .attention_dropout = 0.1,
      .tie_embeddings = false,
      .output_bias = true,
      .vocab_size = 1,
      .causal = false};
  other.data = {{"a"}, {"b"}, {"c"}, "d", 1, SampleBreak::none, LineEnd::none, true, 0.5};
  other.tokenizer = {TokenizerType::sentencepiece, "p", 1, 2, 1, SentencePieceModel::bpe, false, 1};
  other.optimizer = {MuonConfig{.betas = {0, 0}, .eps = 1}, 1, 1, 1, {"*"}, 0.5};
  other.schedule = {ScheduleKind::cosine, 1, 1, 1, 2, 1};
  other.train = {1,
                 1,
                 1,
                 1,
                 1,
                 "a",
                 "causal",
                 Precision::bf16,
                 DeviceChoice::cpu,
                 2,
                 1,
                 true,
                 NonfinitePolicy::stop,
                 1,
                 1,
                 true};
  other.validation = {1, 1, 1, 1, 1, {"a"}};
  other.checkpoint = {1, 3, false, 1};
  other.log = {1, 1, 1, false, LogLevel::error};
  other.distributed = {DistributedBackend::gloo, 1, 1, GradientPrecision::bf16, true, 2};

  std::map<OnResume, std::vector<std::string>> keys;
  for (const ConfigChange& change : config_changes(Config{}, other)) {
    keys[change.on_resume].push_back(change.key);
  }
  const std::vector<std::string> silent{"run_name",
                                        "data.valid",
                                        "data.test",
                                        "data.cache_dir",
                                        "train.steps",
                                        "train.max_epochs",
                                        "train.max_hours",
                                        "train.init_from",
                                        "train.nonfinite",
                                        "train.nonfinite_limit",
                                        "train.divergence_retries",
                                        "validation.every",
                                        "validation.batch_size",
                                        "validation.patience",
                                        "validation.context_window",
                                        "validation.max_tokens",
                                        "validation.prompts",
                                        "checkpoint.every",
                                        "checkpoint.keep_last",
                                        "checkpoint.keep_best",
                                        "checkpoint.keep_every",
                                        "log.every",
                                        "log.grad_stats_every",
                                        "log.grad_histograms_every",
                                        "log.tensorboard",
                                        "log.level",
                                        "distributed.backend",
                                        "distributed.timeout_s",
                                        "distributed.bucket_mb",
                                        "distributed.gradient_precision",
                                        "distributed.shard_optimizer",
                                        "distributed.sequence_parallel"};
  const std::vector<std::string> warn{"optimizer.momentum",
                                      "optimizer.nesterov",
                                      "optimizer.ns_steps",
                                      "optimizer.ns_eps",
                                      "optimizer.betas",
                                      "optimizer.eps",
                                      "optimizer.lr",
                                      "optimizer.weight_decay",
                                      "optimizer.clip_norm",
                                      "optimizer.no_decay",
                                      "optimizer.ema",
                                      "schedule.name",
                                      "schedule.warmup_steps",
                                      "schedule.warmup_init_lr",
                                      "schedule.min_lr",
                                      "schedule.power",
                                      "schedule.decay_steps",
                                      "train.micro_batch_size",
                                      "train.precision",
                                      "train.device",
                                      "train.threads",
                                      "train.deterministic",
                                      "train.activation_checkpointing"};
  EXPECT_EQ(keys[OnResume::silent], silent);
  EXPECT_EQ(keys[OnResume::warn], warn);
  // Of 100 keys, two have one choice only, so they cannot change.
  EXPECT_EQ(keys[OnResume::refuse].size(), 100 - 2 - silent.size() - warn.size());
  EXPECT_THAT(keys[OnResume::refuse], testing::Contains("data.train"));
  EXPECT_THAT(keys[OnResume::refuse], testing::Contains("optimizer.name"));
  EXPECT_THAT(keys[OnResume::refuse], testing::Contains("train.global_batch_size"));
}

}  // namespace
}  // namespace transnormer
