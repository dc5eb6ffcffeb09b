#include "config/fields.h"

#include <algorithm>
#include <cmath>
#include <span>
#include <sstream>
#include <utility>

#include "config/json_tree.h"
#include "config/names.h"
#include "config/objectives.h"

namespace transnormer {
namespace {

using enum OnResume;

void attention(FieldVisitor& v, const Field& field, AttentionConfig& value) {
  v.section(field, [&] { v.alternatives({"attention", field.help}, value); });
}

void model_fields(ModelConfig& m, FieldVisitor& v) {
  visit_choice(
      v,
      {"variant",
       "A published model, which fixes early, late, norm, ffn, ffn_dim, ffn_activation, lrpe and "
       "early_layers; custom leaves them free"},
      m.variant, kModelVariantNames);
  v.integer({"layers", "Number of layers"}, m.layers, {1, kMaxSize});
  v.integer({"dim", "Width of the model"}, m.dim, {1, kMaxSize});
  v.integer({"heads", "Attention heads; must divide dim"}, m.heads, {1, kMaxSize});
  visit_choice(v, {"ffn", "Feed-forward part: gated linear unit, or two plain layers"}, m.ffn,
               kFfnNames);
  v.integer({"ffn_dim", "Width inside the feed-forward part; 0: int(8/3 dim), mlp 4 dim"},
            m.ffn_dim, {0, kMaxSize});
  visit_choice(v, {"ffn_activation", "Activation of the feed-forward part"}, m.ffn_activation,
               kActivationNames);
  v.integer(
      {"early_layers", "How many layers, from the first, use `early`; -1: half, rounded down"},
      m.early_layers, {-1, kMaxSize});
  attention(v, {"early", "Attention of the early layers"}, m.early);
  attention(v, {"late", "Attention of the other layers"}, m.late);
  visit_choice(v, {"norm", "Norm of the layers: SimpleRMSNorm, RMSNorm, LayerNorm"}, m.norm,
               kNormNames);
  v.number({"norm_eps", "Added to what a norm divides by"}, m.norm_eps,
           {.min = 0, .max = 1, .min_open = true});
  visit_choice(v, {"norm_placement", "Norm before or after each part of a layer"}, m.norm_placement,
               kNormPlacementNames);
  visit_choice(v,
               {"embed_norm",
                "Norm of the embeddings; auto: `norm` where norms come after each part, else none"},
               m.embed_norm, kEmbedNormNames);
  visit_choice(v, {"position", "Positions added to the embeddings"}, m.position, kPositionNames);
  v.flag({"lrpe", "Learned rotary positions inside the attention"}, m.lrpe);
  v.number({"dropout", "Share dropped of embeddings, attention and feed-forward output"}, m.dropout,
           kProbability);
  v.number({"attention_dropout", "Share dropped of attention weights"}, m.attention_dropout,
           kProbability);
  v.flag({"tie_embeddings", "One matrix for the embedding and the output layer"}, m.tie_embeddings);
  v.flag({"output_bias", "A bias for each word in the output layer"}, m.output_bias);
  v.integer({"vocab_size", "Rows of the embedding; 0: the tokenizer's size", refuse, "tokens"},
            m.vocab_size, {0, kMaxSize});
  v.flag({"causal", "A token sees itself and what stands before it"}, m.causal);
}

void data_fields(DataConfig& d, FieldVisitor& v) {
  v.paths({"train", "Text to train on"}, d.train);
  v.paths({"valid", "Held-out text for validation while training", silent}, d.valid);
  v.paths({"test", "Held-out text for eval", silent}, d.test);
  v.text({"cache_dir",
          "Where tokenised text is kept; the default is relative to the working directory", silent},
         d.cache_dir, TextKind::directory);
  v.integer({"tokens_per_sample", "Length of a training sample", refuse, "tokens"},
            d.tokens_per_sample, {1, kMaxSize});
  visit_choice(v, {"sample_break", "Where samples may end; none: they run across lines"},
               d.sample_break, kSampleBreakNames);
  visit_choice(v,
               {"line_end",
                "What stands for a line end: the end token, nothing, or the newline itself (bpe)"},
               d.line_end, kLineEndNames);
  v.flag({"strip_cr", "Drops carriage returns that stand before line feeds"}, d.strip_cr);
  v.number({"holdout",
            "Share of the training text, in runs of whole lines, kept for valid where that is not "
            "given; 0: none"},
           d.holdout, kProbability);
}

void tokenizer_fields(TokenizerConfig& t, FieldVisitor& v) {
  visit_choice(v, {"type", "Kind of tokenizer to make or load"}, t.type, kTokenizerNames);
  v.text(
      {"path",
       "A dictionary (fairseq's format), a sentencepiece model or a BPE vocabulary; empty: that of "
       "train.init_from, else made from data.train"},
      t.path, TextKind::file);
  v.integer({"vocab_size", "Size of a tokenizer to make, specials included; word, 0: all words",
             refuse, "tokens"},
            t.vocab_size, {0, kMaxSize});
  v.integer({"min_count", "word: keeps a word that occurs at least so often"}, t.min_count,
            {1, kMaxCount});
  v.integer({"pad_to_multiple", "word: unused entries fill the dictionary up to a multiple"},
            t.pad_to_multiple, {1, 1 << 20});
  visit_choice(v, {"model_type", "sentencepiece: kind of model"}, t.model_type,
               kSentencePieceNames);
  v.flag({"byte_fallback", "sentencepiece: unknown characters are spelled in bytes"},
         t.byte_fallback);
  v.integer({"sample_lines", "Lines to learn from; 0: all", refuse, "lines"}, t.sample_lines,
            {0, kMaxCount});
}

void optimizer_fields(OptimizerConfig& o, FieldVisitor& v) {
  v.alternatives({"name", "Optimizer"}, o.rule);
  v.number({"lr", "Peak learning rate", warn}, o.lr, {.min = 0, .max = 1000});
  v.number({"weight_decay", "Decoupled weight decay", warn}, o.weight_decay,
           {.min = 0, .max = 1000});
  v.number({"clip_norm", "Largest global norm of the gradient; 0: no clipping", warn}, o.clip_norm,
           {});
  v.texts({"no_decay", "Parameters without weight decay: globs over their names", warn},
          o.no_decay);
  v.number({"ema", "Decay of a running mean of the weights, saved beside them; 0: none", warn},
           o.ema, kProbability);
}

void schedule_fields(ScheduleConfig& s, FieldVisitor& v) {
  visit_choice(v, {"name", "Learning rate after the warm-up", warn}, s.name, kScheduleNames);
  v.integer({"warmup_steps", "Length of the linear warm-up", warn, "updates"}, s.warmup_steps,
            {0, kMaxCount});
  v.number({"warmup_init_lr", "Learning rate at the start of the warm-up", warn}, s.warmup_init_lr,
           {.min = 0, .max = 1000});
  v.number({"min_lr", "Learning rate at the end, at most optimizer.lr", warn}, s.min_lr,
           {.min = 0, .max = 1000});
  v.number({"power", "polynomial: exponent of the decay", warn}, s.power,
           {.min = 0, .max = 100, .min_open = true});
  v.integer({"decay_steps",
             "wsd: length of the linear fall to min_lr at the end; 0: a tenth of the steps", warn,
             "updates"},
            s.decay_steps, {0, kMaxCount});
}

void objective(FieldVisitor& visitor, std::string& value) {
  Choice spelled{
      .names = {}, .current = 0, .select = [&](std::size_t i) { value = objective_names()[i]; }};
  for (const std::string& name : objective_names()) {
    if (name == value) {
      spelled.current = spelled.names.size();
    }
    spelled.names.push_back(name.c_str());
  }
  visitor.choice({"objective", "What is learned"}, spelled);
}

void train_fields(TrainConfig& t, FieldVisitor& v) {
  v.integer({"steps", "Length of training; 0: until max_epochs", silent, "updates"}, t.steps,
            {0, kMaxCount});
  v.integer({"max_epochs", "Ends training after so many epochs, if earlier; 0: no limit", silent,
             "epochs"},
            t.max_epochs, {0, kMaxCount});
  v.number({"max_hours", "Each start saves and ends after so long; 0: no limit", silent, "hours"},
           t.max_hours, {.min = 0, .max = 1e6});
  v.integer({"global_batch_size", "Samples of an update, over all ranks", refuse, "sequences"},
            t.global_batch_size, {1, kMaxSize});
  v.integer(
      {"micro_batch_size",
       "Samples of a pass on a rank; 0: its whole share at once; -1: as many as fit into memory",
       warn, "sequences"},
      t.micro_batch_size, {-1, kMaxSize});
  v.text({"init_from", "A checkpoint whose weights a fresh run starts with", silent}, t.init_from,
         TextKind::file);
  objective(v, t.objective);
  visit_choice(v, {"precision", "Type of the matrix products; weights stay fp32", warn},
               t.precision, kPrecisionNames);
  visit_choice(v, {"device", "Where to compute; auto: cuda if there is one", warn}, t.device,
               kDeviceNames);
  v.integer({"seed", "Seed of initial weights, order and dropout"}, t.seed, {});
  v.integer({"threads", "Threads on the CPU; 0: one for each processor that is allowed", warn},
            t.threads, {0, 4096});
  v.flag({"deterministic", "The same bits in every run, on CUDA too", warn}, t.deterministic);
  visit_choice(v, {"nonfinite", "After a loss or gradient that is not finite", silent}, t.nonfinite,
               kNonfiniteNames);
  v.integer({"nonfinite_limit", "Skipped updates in a row that end training", silent, "updates"},
            t.nonfinite_limit, {1, kMaxCount});
  v.integer({"divergence_retries",
             "How many times training that diverged goes back to its last sound state and on "
             "behind the samples seen since",
             silent},
            t.divergence_retries, {0, kMaxCount});
  v.flag(
      {"activation_checkpointing", "Recomputes layers in the backward pass to save memory", warn},
      t.activation_checkpointing);
}

void validation_fields(ValidationConfig& c, FieldVisitor& v) {
  v.integer({"every", "Updates between validations; 0: never", silent, "updates"}, c.every,
            {0, kMaxCount});
  v.integer({"batch_size",
             "Samples of a pass; 0: as in training, at most 8,192 tokens on a CPU, 65,536 on a GPU",
             silent, "sequences"},
            c.batch_size, {0, kMaxSize});
  v.integer({"patience", "Stops after so many validations without a better one; 0: off", silent,
             "validations"},
            c.patience, {0, kMaxCount});
  v.integer({"context_window", "Tokens of a window that only serve as context", silent, "tokens"},
            c.context_window, {0, kMaxSize});
  v.integer({"max_tokens", "Validates on so many tokens, from the first; 0: all", silent, "tokens"},
            c.max_tokens, {0, kMaxCount});
  v.texts({"prompts", "Texts that are continued after each validation, for people", silent},
          c.prompts);
}

void checkpoint_fields(CheckpointConfig& c, FieldVisitor& v) {
  v.integer(
      {"every", "Updates between checkpoints; 0: only the last, and the best", silent, "updates"},
      c.every, {0, kMaxCount});
  v.integer({"keep_last", "How many of the newest to keep", silent, "checkpoints"}, c.keep_last,
            {2, kMaxCount});
  v.flag({"keep_best", "Keeps the one with the best validation loss", silent}, c.keep_best);
  v.integer({"keep_every", "Keeps those at multiples of this for good; 0: none", silent, "updates"},
            c.keep_every, {0, kMaxCount});
}

void log_fields(LogConfig& c, FieldVisitor& v) {
  v.integer({"every", "Updates between lines, beside that of the last; 0: none", silent, "updates"},
            c.every, {0, kMaxCount});
  v.integer({"grad_stats_every", "Updates between gradient statistics; 0: none", silent, "updates"},
            c.grad_stats_every, {0, kMaxCount});
  v.integer(
      {"grad_histograms_every", "Updates between gradient histograms; 0: none", silent, "updates"},
      c.grad_histograms_every, {0, kMaxCount});
  v.flag({"tensorboard", "Writes TensorBoard files", silent}, c.tensorboard);
  visit_choice(v,
               {"level", "Least level of the messages shown; train.log has info and above", silent},
               c.level, kLogLevelNames);
}

void distributed_fields(DistributedConfig& c, FieldVisitor& v) {
  visit_choice(v, {"backend", "Library of the collectives; auto: by device", silent}, c.backend,
               kBackendNames);
  v.number({"timeout_s", "Longest wait for another rank", silent, "seconds"}, c.timeout_s,
           {.min = 0, .max = 1e9, .min_open = true});
  v.number({"bucket_mb", "Gradients sent at once", silent, "MB"}, c.bucket_mb,
           {.min = 0, .max = 1e6, .min_open = true});
  visit_choice(v, {"gradient_precision", "Type in which gradients are sent", silent},
               c.gradient_precision, kGradientPrecisionNames);
  v.flag(
      {"shard_optimizer", "Each rank holds and updates its part of the optimizer's state", silent},
      c.shard_optimizer);
  v.integer({"sequence_parallel", "Ranks that share one sequence, each a part of its tokens",
             silent, "ranks"},
            c.sequence_parallel, {1, kMaxSize});
}

std::string plain(double value) {
  std::ostringstream text;
  text << value;
  return text.str();
}

}  // namespace

void visit_fields(Config& config, FieldVisitor& visitor) {
  visitor.text(
      {"run_name", "Name of the run and its directory; the file's stem unless told", silent},
      config.run_name, TextKind::name);
  visitor.section({"model", "The model"}, [&] { model_fields(config.model, visitor); });
  visitor.section({"data",
                   "Text: each split a path, a glob or a list; paths are relative to the "
                   "file that holds them"},
                  [&] { data_fields(config.data, visitor); });
  visitor.section({"tokenizer", "How text becomes tokens; all but path act only when one is made"},
                  [&] { tokenizer_fields(config.tokenizer, visitor); });
  visitor.section({"optimizer", "The optimizer"},
                  [&] { optimizer_fields(config.optimizer, visitor); });
  visitor.section({"schedule", "The learning rate over the updates"},
                  [&] { schedule_fields(config.schedule, visitor); });
  visitor.section({"train", "The training run"}, [&] { train_fields(config.train, visitor); });
  visitor.section({"validation", "Validation while training"},
                  [&] { validation_fields(config.validation, visitor); });
  visitor.section({"checkpoint", "What is saved; the last step always is"},
                  [&] { checkpoint_fields(config.checkpoint, visitor); });
  visitor.section({"log", "What is reported"}, [&] { log_fields(config.log, visitor); });
  visitor.section({"distributed", "Several processes"},
                  [&] { distributed_fields(config.distributed, visitor); });
}

bool contains(const NumberRange& range, double value) {
  return std::isfinite(value) && (range.min_open ? value > range.min : value >= range.min) &&
         (range.max_open ? value < range.max : value <= range.max);
}

std::string describe(const IntegerRange& range) {
  if (range.max == IntegerRange{}.max) {
    return "an integer, at least " + std::to_string(range.min);
  }
  return "an integer from " + std::to_string(range.min) + " to " + std::to_string(range.max);
}

std::string describe(const NumberRange& range, const char* noun) {
  std::string text = noun;
  text += (text.empty() ? "" : " ");
  text += (range.min_open ? "above " : "of at least ") + plain(range.min);
  if (range.max != NumberRange{}.max) {
    text += (range.max_open ? " and below " : " and at most ") + plain(range.max);
  }
  return text;
}

std::string describe(const std::vector<const char*>& choices) {
  std::string text = choices.size() == 1 ? "" : "one of ";
  for (std::size_t i = 0; i < choices.size(); ++i) {
    text += std::string(i == 0 ? "" : ", ") + '"' + choices[i] + '"';
  }
  return text;
}

std::string describe(TextKind kind) {
  switch (kind) {
    case TextKind::name:
      return "a name without \"/\"";
    case TextKind::file:
      return "a path, or \"\" for none";
    case TextKind::directory:
      return "a path";
  }
  return "";
}

std::string misspelled(const std::string& text, TextKind kind) {
  const bool control = std::any_of(text.begin(), text.end(), [](char c) {
    return static_cast<unsigned char>(c) < 0x20 || c == 0x7f;
  });
  if (control) {
    return "without control characters";
  }
  if (!is_utf8(text)) {
    return "in UTF-8";
  }
  if (kind == TextKind::name &&
      (text.find('/') != std::string::npos || text == "." || text == "..")) {
    return "without \"/\", that can name a directory";
  }
  if (kind == TextKind::name && text.size() > 200) {
    return "of at most 200 bytes";
  }
  return "";
}

}  // namespace transnormer
