#include "config/check.h"

#include <algorithm>
#include <array>
#include <initializer_list>
#include <string_view>

#include "config/names.h"
#include "config/splits.h"
#include "config/variant.h"
#include "util/error.h"
#include "util/units.h"

namespace transnormer {
namespace {

constexpr std::array<std::string_view, 3> kUsualHeads{"diag", "norm", "softmax"};

std::string text_of(std::int64_t value) {
  return std::to_string(value);
}

// Whether a layer has an attention of the variants, whose heads are model.dim / model.heads wide.
// Others are declared above this layer, with widths of their own, and the model refuses odd ones.
bool has_usual_heads(const ModelConfig& model) {
  const auto usual = [](const AttentionConfig& attention) {
    return std::ranges::find(kUsualHeads, std::string_view(attention.name())) != kUsualHeads.end();
  };
  const std::int64_t early = model.resolved_early_layers();
  return (early > 0 && usual(model.early)) || (early < model.layers && usual(model.late));
}

class Checker {
 public:
  Checker(const Config& config, ReadState& state, std::vector<std::string>& warnings)
      : c_(config), state_(state), warnings_(warnings) {}

  void run() {
    check_variant();
    check_model();
    check_sizes();
    check_holdout();
    check_tokenizer();
    check_training();
    check_evaluation();
  }

 private:
  using Keys = std::initializer_list<const char*>;

  [[nodiscard]] bool judged(Keys keys) const {
    return std::none_of(keys.begin(), keys.end(),
                        [&](const char* key) { return state_.faulty.contains(key); });
  }

  // "configs/x.json:7: model.heads", by the first of the keys that anyone named.
  [[nodiscard]] std::string located(Keys keys) const {
    for (const char* key : keys) {
      if (const auto origin = state_.origins.find(key); origin != state_.origins.end()) {
        return origin->second.place + ": " + *keys.begin();
      }
    }
    return *keys.begin();
  }

  // A fault of the first key, if the others are sound.
  void require(bool good, Keys keys, const std::string& message) {
    if (!good && judged(keys)) {
      state_.faults.push_back(located(keys) + ": " + message);
    }
  }
  void advise(bool good, Keys keys, const std::string& message) {
    if (!good && judged(keys)) {
      warnings_.push_back(located(keys) + ": " + message);
    }
  }

  void check_variant() {
    if (state_.faulty.contains("model.variant")) {
      return;
    }
    for (const Contradiction& part : contradictions(c_)) {
      require(false, {part.key.c_str(), "model.variant", "model.dim", "model.layers"},
              part.value + " contradicts the variant \"" + to_string(c_.model.variant) +
                  "\", which has " + part.fixed +
                  "; set model.variant to \"custom\" to choose the parts freely (it starts from "
                  "those of t2)");
    }
  }

  void check_model() {
    const ModelConfig& m = c_.model;
    require(m.dim % m.heads == 0, {"model.heads", "model.dim"},
            text_of(m.heads) + " does not divide model.dim " + text_of(m.dim) +
                "; expected a divisor of it");
    require(!m.lrpe || !has_usual_heads(m) || m.dim % m.heads != 0 || m.head_dim() % 2 == 0,
            {"model.heads", "model.dim", "model.lrpe"},
            "model.dim / model.heads is " + text_of(m.head_dim()) +
                "; expected an even number, since model.lrpe turns pairs");
    require(m.position != PositionKind::sinusoidal || (m.dim % 2 == 0 && m.dim >= 4),
            {"model.dim", "model.position"},
            text_of(m.dim) + "; expected an even number from 4 with model.position \"sinusoidal\"");
    require(m.early_layers <= m.layers, {"model.early_layers", "model.layers"},
            text_of(m.early_layers) + "; expected at most model.layers, " + text_of(m.layers));
  }

  // Sizes whose product no machine holds, and no 64-bit count of bytes may. Whether smaller ones
  // fit into the memory at hand is the model's question.
  void check_sizes() {
    constexpr double kAbsurdBytes = 0x1p50;  // 1 PiB
    const ModelConfig& m = c_.model;
    const double dim = static_cast<double>(m.dim);
    const double ffn = static_cast<double>(m.resolved_ffn_dim()) * (m.ffn == FfnKind::glu ? 3 : 2);
    const double weights =  // beside the attention's own, which are the model's to count
        4 * (static_cast<double>(m.layers) * dim * ffn +
             static_cast<double>(std::max(m.vocab_size, c_.tokenizer.vocab_size)) * dim);
    require(weights < kAbsurdBytes,
            {"model.dim", "model.layers", "model.ffn_dim", "model.vocab_size"},
            "the feed-forward parts and the embedding would take " + format_bytes(weights) +
                " of memory; expected smaller layers, dim, ffn_dim or vocab_size");
    const double activations = 4 * dim * static_cast<double>(c_.data.tokens_per_sample) *
                               static_cast<double>(c_.train.resolved_micro_batch_size());
    require(activations < kAbsurdBytes,
            {"data.tokens_per_sample", "train.global_batch_size", "train.micro_batch_size",
             "model.dim"},
            "one layer's output would take " + format_bytes(activations) +
                " of memory; expected a smaller tokens_per_sample, micro_batch_size or dim");
  }

  void check_tokenizer() {
    const TokenizerConfig& t = c_.tokenizer;
    require(c_.data.line_end != LineEnd::keep || t.type == TokenizerType::bpe,
            {"data.line_end", "tokenizer.type"},
            "\"keep\" needs tokenizer.type \"bpe\"; expected \"eos\" or \"none\" with \"" +
                std::string(name_of<TokenizerType>(kTokenizerNames, t.type)) + '"');
    if (!t.path.empty() || !c_.train.init_from.empty()) {
      return;  // the other settings do not act
    }
    constexpr std::int64_t kSmallest = 5;  // four specials and a word
    require(t.vocab_size == 0 || t.vocab_size >= kSmallest, {"tokenizer.vocab_size"},
            text_of(t.vocab_size) + "; expected 0 or at least " + text_of(kSmallest));
    require(t.type != TokenizerType::sentencepiece || c_.model.vocab_size == 0 ||
                t.vocab_size <= c_.model.vocab_size,
            {"tokenizer.vocab_size", "model.vocab_size", "tokenizer.type"},
            text_of(t.vocab_size) + "; expected at most model.vocab_size, " +
                text_of(c_.model.vocab_size));
  }

  void check_training() {
    const TrainConfig& t = c_.train;
    require(t.micro_batch_size <= t.global_batch_size,
            {"train.micro_batch_size", "train.global_batch_size"},
            text_of(t.micro_batch_size) + "; expected at most train.global_batch_size, " +
                text_of(t.global_batch_size));
    require(c_.schedule.min_lr <= c_.optimizer.lr, {"schedule.min_lr", "optimizer.lr"},
            "larger than optimizer.lr; expected at most the peak learning rate");
    advise(t.steps == 0 || c_.schedule.warmup_steps <= t.steps,
           {"schedule.warmup_steps", "train.steps"},
           "the warm-up of " + text_of(c_.schedule.warmup_steps) +
               " updates ends after training does, at train.steps " + text_of(t.steps) +
               "; optimizer.lr is never reached");
    const ScheduleConfig& s = c_.schedule;
    const std::int64_t fall = s.decay_steps > 0 ? s.decay_steps : t.steps / 10;
    advise(s.name != ScheduleKind::wsd || t.steps == 0 || s.warmup_steps > t.steps ||
               fall <= t.steps - s.warmup_steps,
           {"schedule.decay_steps", "schedule.warmup_steps", "train.steps"},
           "the fall of " + text_of(fall) + " updates to the end at train.steps " +
               text_of(t.steps) + " begins before the warm-up of " + text_of(s.warmup_steps) +
               " ends; optimizer.lr is never reached");
  }

  void check_evaluation() {
    const ValidationConfig& v = c_.validation;
    require(v.context_window < c_.data.tokens_per_sample,
            {"validation.context_window", "data.tokens_per_sample"},
            text_of(v.context_window) + "; expected less than data.tokens_per_sample, " +
                text_of(c_.data.tokens_per_sample));
    advise(v.patience == 0 || v.every > 0, {"validation.patience", "validation.every"},
           "never acts while validation.every is 0");
    advise(v.patience == 0 || v.every == 0 || has_valid(c_.data),
           {"validation.patience", "data.valid"}, "never acts without data.valid or data.holdout");
  }

  void check_holdout() {
    const DataConfig& d = c_.data;
    advise(d.holdout == 0 || d.valid.empty(), {"data.holdout", "data.valid"},
           "never acts beside data.valid: all of data.train is trained on");
    advise(d.holdout == 0 || !d.valid.empty() || !d.train.empty(), {"data.holdout", "data.train"},
           "never acts without data.train");
  }

  const Config& c_;
  ReadState& state_;
  std::vector<std::string>& warnings_;
};

}  // namespace

void check_config(const Config& config, ReadState& state, std::vector<std::string>& warnings) {
  Checker(config, state, warnings).run();
}

}  // namespace transnormer
