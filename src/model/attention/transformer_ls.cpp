// Long-short attention (Zhu et al. 2021, "Long-Short Transformer"): one softmax over a window of
// the nearest tokens and over summaries of longer stretches, each the mean of keys and of values by
// weights that the tokens themselves ask for.
//
// Causal, with q' = q / sqrt(dh), heads apart and t's chunk m = t / chunk:
//   window:    (q'_t + b1).k_j + (q'_t + b2).R(t - j)   for 0 <= t - j < window
//   summaries: q'_t.kc_c + q'_t.Rc(m - 1 - c)           for the chunks c before m
//   p = softmax over the chunk of compress_proj(x),  kc = sum p k,  vc = sum p v
// with window_norm over the window's keys and values and summary_norm over kc and vc, each one
// LayerNorm for keys and values, over all heads together; R and Rc are distance_proj and
// chunk_distance_proj of [sin, cos](distance 10000^(-2i / d)).
// Bidirectional: window_norm over all keys and values; `rank` summaries of the sequence, p a
// softmax over it; groups of `window` tokens see themselves and half a window on each side. No
// terms of distance, nor tensors for them.
//
// Distances, chunks and groups count the tokens of each sequence; the published code sees padding,
// here nothing does. Its causal form, too, carries the keys of the sample before (its "memory"),
// which is unrelated text where samples are shuffled; that is left out and has no parameters.
#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "config/fields.h"
#include "model/attention/key_value_cache.h"
#include "model/attention/registry.h"
#include "model/attention/transformer_ls_parts.h"
#include "model/attention/unit_values.h"
#include "ops/attention/groups.h"
#include "ops/norm.h"
#include "ops/runtime/philox_tensor.h"

namespace transnormer {
namespace {

using namespace long_short;  // NOLINT

constexpr LinearStart kStart{.zero_bias = true, .normal_std = kStd};
constexpr double kHidden = -std::numeric_limits<double>::infinity();

struct TransformerLsConfig {
  static constexpr const char* kName = "transformer_ls";
  static constexpr const char* kHelp =
      "Long-short attention: a window and learned summaries of chunks in one softmax";
  static constexpr const char* kFormula = "softmax over a window and over learned means of chunks";
  static constexpr const char* kCost = "O(n (w + n/c))";
  static constexpr Abilities kAbilities{.lrpe = false};

  std::int64_t window = 64;
  std::int64_t chunk = 32;
  std::int64_t rank = 0;

  void visit(FieldVisitor& visitor) {
    visitor.integer(
        {"window", "Nearest tokens that are seen one by one", OnResume::refuse, "tokens"}, window,
        {1, kMaxSize});
    visitor.integer(
        {"chunk", "Tokens that share summaries, where causal", OnResume::refuse, "tokens"}, chunk,
        {1, kMaxSize});
    visitor.integer({"rank", "Summaries of a chunk, or of a bidirectional sequence; 0: 1 and 32"},
                    rank, {0, 1 << 20});
  }
  [[nodiscard]] std::int64_t resolved_rank(bool causal) const {
    return rank > 0 ? rank : (causal ? 1 : 32);
  }
  [[nodiscard]] std::shared_ptr<Attention> make(const AttentionSettings& settings) const;
  bool operator==(const TransformerLsConfig&) const = default;
};

class TransformerLs : public Attention, public Initializable {
 public:
  TransformerLs(const TransformerLsConfig& config, const AttentionSettings& settings)
      : config_(config),
        settings_(settings),
        rank_(config.resolved_rank(settings.causal)),
        scale_(1 / std::sqrt(static_cast<double>(settings.head_dim()))),
        joint_(*this, settings.dim,
               {{"q_proj", settings.inner_dim(), kStart},
                {"k_proj", settings.inner_dim(), kStart},
                {"v_proj", settings.inner_dim(), kStart},
                {"compress_proj", settings.heads * rank_, kStart}},
               settings.device),
        out_(
            register_module("out_proj", std::make_shared<Linear>(settings.inner_dim(), settings.dim,
                                                                 kStart, settings.device))) {
    const std::int64_t inner = settings.inner_dim();
    if (settings.causal) {
      const auto distances = [&](const char* name) {
        return register_module(name,
                               std::make_shared<Distances>(inner, settings.heads, settings.device));
      };
      near_ = distances("distance_proj");
      far_ = distances("chunk_distance_proj");
      key_bias_ = register_parameter("key_bias", at::empty({inner}, at::device(settings.device)));
      distance_bias_ =
          register_parameter("distance_bias", at::empty({inner}, at::device(settings.device)));
    }
    const auto norm = [&](const char* name) {
      return register_module(name, std::make_shared<NearlyUnitNorm>(inner, settings.device));
    };
    summary_norm_ = norm("summary_norm");
    window_norm_ = norm("window_norm");
  }

  void initialize(const Initializer& initializer, const std::string& prefix) override {
    if (settings_.causal) {
      initializer.normal(key_bias_, prefix + "key_bias", kStd);
      initializer.normal(distance_bias_, prefix + "distance_bias", kStd);
    }
  }

  [[nodiscard]] at::Tensor forward(const at::Tensor& x, const ForwardContext& context,
                                   AttentionState* state) override {
    return forward_from(x, x, context, state);
  }

  [[nodiscard]] at::Tensor forward_from(const at::Tensor& queries, const at::Tensor& x,
                                        const ForwardContext& context,
                                        AttentionState* state) override {
    const std::vector<at::Tensor> projected = project(queries, x, context);
    const at::Tensor attended = state == nullptr
                                    ? attend(projected, context)
                                    : go_on(projected, static_cast<LongShortState&>(*state));
    return out_->forward(attended.to(context.compute).flatten(2), context.compute);
  }

  // A summary's weight is shared out to its tokens by the weights that made it; the norm of its
  // values is left out, as that of the window's.
  [[nodiscard]] at::Tensor weights(const at::Tensor& x, const ForwardContext& context) override {
    const at::NoGradGuard no_gradients;
    std::vector<at::Tensor> projected = project(x, x, context);
    projected.emplace_back();
    return weights_of_values(x.size(0), x.size(1), settings_.heads, settings_.head_dim(),
                             x.device(), [&](const at::Tensor& values) {
                               projected.back() = values;
                               return attend(projected, context);
                             });
  }

  // Its dropout is no kernel, so that it would drop the same in each replay.
  [[nodiscard]] bool can_be_captured() const override { return settings_.dropout == 0; }

  [[nodiscard]] std::unique_ptr<AttentionState> make_state(std::int64_t) const override {
    return std::make_unique<LongShortState>();
  }

  [[nodiscard]] StateBytes state_bytes(at::ScalarType compute) const override {
    const auto inner = static_cast<double>(settings_.inner_dim());
    const auto window = static_cast<double>(config_.window);
    const auto chunk = static_cast<double>(config_.chunk);
    const auto rank = static_cast<double>(rank_);
    const auto element = static_cast<double>(c10::elementSize(compute));
    return {
        .fixed = 4 * inner * (2 * (window - 1) + window) +
                 element * (chunk - 1) * (2 * inner + static_cast<double>(settings_.heads) * rank),
        .per_token = 4 * inner * (2 * rank + 1) / chunk};
  }

  [[nodiscard]] double flops_per_token(std::int64_t length) const override {
    const auto inner = static_cast<double>(settings_.inner_dim());
    const auto rank = static_cast<double>(rank_);
    const auto n = static_cast<double>(length);
    if (!settings_.causal) {
      const auto seen =
          static_cast<double>(std::min(length, config_.window + 2 * (config_.window / 2)));
      return 4 * inner * (seen + 2 * rank);
    }
    const std::int64_t window = std::min(config_.window, length);
    const std::int64_t chunks = parts_of(length, config_.chunk);
    const double seen = static_cast<double>(window + 1) / 2 * (static_cast<double>(window) / n) +
                        static_cast<double>(window) * (1 - static_cast<double>(window) / n);
    const double before = static_cast<double>(chunks - 1) / 2;
    // Scores, distances and values; making the summaries; the vectors of distances.
    return 6 * inner * seen + before * inner * (4 * rank + 2) + 4 * inner * rank +
           2 * inner * inner * static_cast<double>(window + chunks) / n;
  }

  // q, k, v, the scaled queries with and without biases, keys and values of the windows, which
  // overlap, the merged heads; the weights.
  [[nodiscard]] double kept_bytes_per_token(at::ScalarType) const override {
    const auto inner = static_cast<double>(settings_.inner_dim());
    const auto heads = static_cast<double>(settings_.heads);
    const auto rank = static_cast<double>(rank_);
    const auto slots = static_cast<double>(2 * config_.window);
    const double summaries =
        settings_.causal
            ? rank * static_cast<double>(parts_of(settings_.max_positions, config_.chunk))
            : rank;
    return 4 * (inner * (settings_.causal ? 11 : 9) + heads * (slots + summaries + rank));
  }

  [[nodiscard]] std::vector<ParameterGroup> groups() const override {
    std::vector<ParameterGroup> groups;
    for (const char* name : {"q_proj", "k_proj", "v_proj", "out_proj"}) {
      groups.push_back({name, named_children()[name]->parameters()});
    }
    return groups;
  }

 private:
  enum Part : std::size_t { kQuery, kKey, kValue, kLogits, kUnit };

  // What a row of scores knows of its tokens.
  struct Tokens {
    at::Tensor lengths;  // undefined: all are full
    at::Tensor sample;   // [rows]
    at::Tensor number;   // [rows or 1, time], of the sample's real tokens
  };

  // Scores of all slots and what they stand for, [rows, heads, time, slots] over keys in windows
  // and summaries.
  struct Slots {
    at::Tensor window;          // scores [rows, heads, time, window slots]
    at::Tensor summaries;       // scores [rows, heads, time, summaries]; undefined: none
    at::Tensor window_hidden;   // bool, broadcastable
    at::Tensor summary_hidden;  // the same; undefined: none is hidden
  };

  // q, k, v: [batch, time, heads, head_dim]; logits of the summaries: [batch, time, heads, rank].
  [[nodiscard]] std::vector<at::Tensor> project(const at::Tensor& queries, const at::Tensor& x,
                                                const ForwardContext& context) const {
    const std::int64_t inner = settings_.inner_dim();
    const auto parts_of_input = [&](const at::Tensor& input) {
      return joint_.forward(input, context.compute)
          .split_with_sizes({inner, inner, inner, settings_.heads * rank_}, -1);
    };
    std::vector<at::Tensor> parts = parts_of_input(x);
    if (!queries.is_same(x)) {
      parts[kQuery] = parts_of_input(queries)[kQuery];
    }
    for (at::Tensor& part : parts) {
      part = part.unflatten(-1, {settings_.heads, -1});
    }
    return parts;
  }

  [[nodiscard]] at::Tensor attend(const std::vector<at::Tensor>& parts,
                                  const ForwardContext& context) const {
    const at::Tensor& q = parts[kQuery];
    const auto integers = q.options().dtype(at::kLong);
    if (context.visibility.whole_rows()) {
      return rows(parts,
                  {.lengths = {},
                   .sample = at::arange(q.size(0), integers),
                   .number = at::arange(q.size(1), integers).unsqueeze(0)},
                  context);
    }
    const ops::Groups groups(context.visibility, q.size(0), q.size(1), 0, q.device());
    std::vector<at::Tensor> gathered;
    for (const at::Tensor& part : parts) {
      gathered.push_back(groups.gather(part));
    }
    if (groups.all().empty()) {
      return groups.scatter({gathered[parts.size() > kUnit ? kUnit : kValue].to(at::kFloat)});
    }
    std::vector<at::Tensor> results;
    for (const ops::RowsOfTokens& set : groups.all()) {
      std::vector<at::Tensor> own;
      for (const at::Tensor& tensor : gathered) {
        own.push_back(ops::Groups::part(tensor, set));
      }
      results.push_back(
          rows(own, {.lengths = set.lengths, .sample = set.sample, .number = set.number}, context));
    }
    return groups.scatter(results);
  }

  // fp32 [rows, time, heads, value_dim].
  [[nodiscard]] at::Tensor rows(const std::vector<at::Tensor>& parts, const Tokens& tokens,
                                const ForwardContext& context) const {
    return settings_.causal ? causal_rows(parts, tokens, context)
                            : bidirectional_rows(parts, tokens, context);
  }

  // x: [rows, heads, chunks, rank, dim] -> [rows, heads, chunks * rank, dim], normed over the
  // heads.
  [[nodiscard]] at::Tensor normed_summaries(const at::Tensor& x) const {
    return summary_norm_->forward(x.flatten(2, 3).transpose(1, 2));
  }

  [[nodiscard]] at::Tensor causal_rows(const std::vector<at::Tensor>& parts, const Tokens& tokens,
                                       const ForwardContext& context) const {
    const std::int64_t time = parts[kQuery].size(1);
    const std::int64_t window = std::min(config_.window, time);
    const std::int64_t blocks = parts_of(time, window);
    const std::int64_t places = blocks * window;
    const std::int64_t chunks = parts_of(time, config_.chunk);
    const at::Tensor q = up_to(heads_first(parts[kQuery]) * scale_, places);
    const at::Tensor keys = up_to(window_norm_->forward(parts[kKey]), places);
    const bool units = parts.size() > kUnit;
    const at::Tensor values =
        up_to(units ? heads_first(parts[kUnit]) : window_norm_->forward(parts[kValue]), places);

    Slots slots = window_slots(q, keys, window);
    at::Tensor summary_values;
    if (chunks > 1) {
      // Those of the last chunk no token sees.
      const auto cut = [&](const at::Tensor& x) {
        return heads_first(x.narrow(1, 0, (chunks - 1) * config_.chunk))
            .unflatten(2, {chunks - 1, config_.chunk});
      };
      const at::Tensor weights = at::softmax(cut(parts[kLogits]), 3).mT();
      const at::Tensor summary_keys = normed_summaries(at::matmul(weights, cut(parts[kKey])));
      summary_values = units ? at::matmul(weights, cut(parts[kUnit])).flatten(2, 3)
                             : normed_summaries(at::matmul(weights, cut(parts[kValue])));
      add_summary_slots(slots, q, summary_keys, time, chunks);
    }
    const std::vector<at::Tensor> weights = weights_of(slots, tokens, context);
    const at::Tensor near = at::matmul(weights[0].unflatten(2, {blocks, window}),
                                       around_blocks(values, window, window - 1, 0))
                                .flatten(2, 3);
    const at::Tensor all = chunks > 1 ? near + at::matmul(weights[1], summary_values) : near;
    return all.narrow(2, 0, time).transpose(1, 2);
  }

  // Each block of `window` queries against its own keys and the window - 1 before them: query a and
  // slot s are window - 1 + a - s apart.
  [[nodiscard]] Slots window_slots(const at::Tensor& q, const at::Tensor& keys,
                                   std::int64_t window) const {
    const std::int64_t slots = 2 * window - 1;
    const auto blocks_of = [&](const at::Tensor& x) { return x.unflatten(2, {-1, window}); };
    const at::Tensor scores = at::matmul(blocks_of(q + by_head(key_bias_)),
                                         around_blocks(keys, window, window - 1, 0).mT());
    // Rows by falling distance; row a then moves a places: one more column each row does that.
    const at::Tensor vectors = near_->forward(0, window).flip(1);
    const at::Tensor by_distance = at::matmul(q + by_head(distance_bias_), vectors.mT());
    const at::Tensor moved = at::constant_pad_nd(blocks_of(by_distance), {0, window})
                                 .flatten(-2)
                                 .narrow(-1, 0, window * slots)
                                 .unflatten(-1, {window, slots});
    const auto integers = q.options().dtype(at::kLong);
    const at::Tensor a = at::arange(window, integers).unsqueeze(1);
    const at::Tensor s = at::arange(slots, integers);
    const at::Tensor first = at::arange(q.size(2) / window, integers).view({-1, 1, 1}) * window;
    const at::Tensor hidden =
        (s < a).logical_or(s - a >= window).logical_or(first + s < window - 1);
    return {.window = (scores + moved).flatten(2, 3),
            .summaries = {},
            .window_hidden = hidden.flatten(0, 1),
            .summary_hidden = {}};
  }

  void add_summary_slots(Slots& slots, const at::Tensor& q, const at::Tensor& summary_keys,
                         std::int64_t time, std::int64_t chunks) const {
    const std::int64_t places = q.size(2);
    const std::int64_t chunk = config_.chunk;
    // [.., chunk, own chunk o, falling distance m = chunks - 1 - D]: that of summary c = o - 1 - D
    // is m = c + chunks - o. Leaving out the first row and one column each row moves it there.
    const at::Tensor vectors = far_->forward(0, chunks).flip(1);
    const at::Tensor by_distance =
        up_to(at::matmul(q.narrow(2, 0, time), vectors.mT()), chunks * chunk)
            .unflatten(2, {chunks, chunk})
            .transpose(2, 3);
    const at::Tensor moved = by_distance.flatten(-2)
                                 .narrow(-1, chunks, chunks * (chunks - 1))
                                 .unflatten(-1, {chunks, chunks - 1})
                                 .transpose(2, 3)
                                 .flatten(2, 3)
                                 .narrow(2, 0, time);
    slots.summaries = at::matmul(q, summary_keys.mT()) + repeated(up_to(moved, places));
    const auto integers = q.options().dtype(at::kLong);
    const at::Tensor own = at::arange(places, integers).floor_divide(chunk);
    slots.summary_hidden = repeated(at::arange(chunks - 1, integers) >= own.unsqueeze(1));
  }

  // Each of the last dimension rank times.
  [[nodiscard]] at::Tensor repeated(const at::Tensor& x) const {
    return rank_ == 1 ? x : at::repeat_interleave(x, rank_, -1);
  }

  // [inner] -> [heads, 1, head_dim].
  [[nodiscard]] at::Tensor by_head(const at::Tensor& bias) const {
    return bias.view({settings_.heads, 1, settings_.head_dim()});
  }

  [[nodiscard]] at::Tensor bidirectional_rows(const std::vector<at::Tensor>& parts,
                                              const Tokens& tokens,
                                              const ForwardContext& context) const {
    const std::int64_t time = parts[kQuery].size(1);
    const std::int64_t window = std::min(config_.window, time);
    const std::int64_t side = window / 2;
    const std::int64_t blocks = parts_of(time, window);
    const std::int64_t places = blocks * window;
    const auto integers = parts[kQuery].options().dtype(at::kLong);
    const at::Tensor q = up_to(heads_first(parts[kQuery]) * scale_, places);
    const at::Tensor keys = window_norm_->forward(parts[kKey]);
    const bool units = parts.size() > kUnit;
    const at::Tensor values =
        units ? heads_first(parts[kUnit]) : window_norm_->forward(parts[kValue]);

    at::Tensor logits = heads_first(parts[kLogits]);
    const at::Tensor real = ops::is_token(tokens.lengths, time);
    if (real.defined()) {
      logits = logits.masked_fill(real.logical_not().view({-1, 1, time, 1}), kHidden);
    }
    const at::Tensor shares = at::softmax(logits, 2).mT();
    const at::Tensor summary_keys = normed_summaries(at::matmul(shares, keys).unsqueeze(2));
    const at::Tensor summary_values =
        units ? at::matmul(shares, values)
              : normed_summaries(at::matmul(shares, values).unsqueeze(2));

    const at::Tensor place = at::arange(blocks, integers).unsqueeze(1) * window +
                             at::arange(-side, window + side, integers);
    const at::Tensor end = tokens.lengths.defined() ? tokens.lengths.view({-1, 1, 1})
                                                    : at::full({1, 1, 1}, time, integers);
    const at::Tensor hidden = (place < 0).logical_or(place >= end);  // [rows or 1, blocks, slots]
    const Slots slots{
        .window = at::matmul(q.unflatten(2, {blocks, window}),
                             around_blocks(up_to(keys, places), window, side, side).mT())
                      .flatten(2, 3),
        .summaries = at::matmul(q, summary_keys.mT()),
        .window_hidden =
            hidden.unsqueeze(2).expand({-1, -1, window, -1}).flatten(1, 2).unsqueeze(1),
        .summary_hidden = {}};
    const std::vector<at::Tensor> weights = weights_of(slots, tokens, context);
    const at::Tensor near = at::matmul(weights[0].unflatten(2, {blocks, window}),
                                       around_blocks(up_to(values, places), window, side, side));
    return (near.flatten(2, 3) + at::matmul(weights[1], summary_values))
        .narrow(2, 0, time)
        .transpose(1, 2);
  }

  // Of the window's slots and of the summaries: one softmax, and dropout.
  [[nodiscard]] std::vector<at::Tensor> weights_of(const Slots& slots, const Tokens& tokens,
                                                   const ForwardContext& context) const {
    const at::Tensor near = slots.window.masked_fill(slots.window_hidden, kHidden);
    if (!slots.summaries.defined()) {
      return {dropped(at::softmax(near, -1), tokens, context)};
    }
    const at::Tensor far = slots.summary_hidden.defined()
                               ? slots.summaries.masked_fill(slots.summary_hidden, kHidden)
                               : slots.summaries;
    return dropped(at::softmax(at::cat({near, far}, -1), -1), tokens, context)
        .split_with_sizes({near.size(-1), far.size(-1)}, -1);
  }

  // A weight's number in its sample: (head * 2^24 + the query's real token) * 2^24 + slot, so that
  // padding does not change it. weights: [rows, heads, places, slots].
  [[nodiscard]] at::Tensor dropped(const at::Tensor& weights, const Tokens& tokens,
                                   const ForwardContext& context) const {
    if (!context.training || settings_.dropout == 0) {
      return weights;
    }
    constexpr std::int64_t kMost = 1LL << 24;
    const auto integers = tokens.number.options();
    const at::Tensor query =
        at::constant_pad_nd(tokens.number, {0, weights.size(2) - tokens.number.size(1)});
    const at::Tensor element = (at::arange(settings_.heads, integers).view({-1, 1, 1}) * kMost +
                                query.view({query.size(0), 1, -1, 1})) *
                                   kMost +
                               at::arange(weights.size(3), integers);
    const ops::DropoutKey key =
        context.dropout_key(settings_.random_key, DropoutSite::attention_weights, settings_.heads);
    return weights * ops::dropout_mask_of(
                         ops::philox_bits_at(tokens.sample.view({-1, 1, 1, 1}), element, key),
                         settings_.dropout);
  }

  // A window's tokens at a time.
  [[nodiscard]] at::Tensor go_on(const std::vector<at::Tensor>& parts, LongShortState& past) const {
    const std::int64_t time = parts[kQuery].size(1);
    std::vector<at::Tensor> results;
    for (std::int64_t first = 0; first < time; first += config_.window) {
      const std::int64_t count = std::min(config_.window, time - first);
      std::vector<at::Tensor> piece;
      for (const at::Tensor& part : parts) {
        piece.push_back(part.narrow(1, first, count));
      }
      results.push_back(step(piece, past));
    }
    return results.size() == 1 ? results[0] : at::cat(results, 1);
  }

  [[nodiscard]] at::Tensor step(const std::vector<at::Tensor>& parts, LongShortState& past) const {
    const std::int64_t time = parts[kQuery].size(1);
    const std::int64_t window = config_.window;
    const auto integers = parts[kQuery].options().dtype(at::kLong);
    const at::Tensor q = heads_first(parts[kQuery]) * scale_;
    if (!past.near.defined()) {
      past.near = near_->forward(0, window).contiguous();
    }
    close_chunks(parts, past);
    const auto joined = [](const at::Tensor& old, const at::Tensor& fresh) {
      return old.defined() ? at::cat({old, fresh}, 2) : fresh;
    };
    const at::Tensor keys = joined(past.window_k, window_norm_->forward(parts[kKey]));
    const at::Tensor values = joined(past.window_v, window_norm_->forward(parts[kValue]));
    const std::int64_t held = keys.size(2);

    // The scores of each key by its distance to the query.
    const at::Tensor distance =
        at::arange(held - time, held, integers).unsqueeze(1) - at::arange(held, integers);
    const at::Tensor by_distance = at::matmul(q + by_head(distance_bias_), past.near.mT());
    Slots slots{
        .window =
            at::matmul(q + by_head(key_bias_), keys.mT()) +
            at::gather(by_distance, 3,
                       distance.clamp(0, window - 1).expand({q.size(0), q.size(1), time, held})),
        .summaries = {},
        .window_hidden = (distance < 0).logical_or(distance >= window),
        .summary_hidden = {}};
    const std::int64_t chunks = past.summaries.size() / rank_;
    if (chunks > 0) {
      const at::Tensor own =
          at::arange(past.tokens, past.tokens + time, integers).floor_divide(config_.chunk);
      const at::Tensor apart = own.unsqueeze(1) - 1 - at::arange(chunks, integers);
      const at::Tensor to_chunks = at::matmul(q, far_vectors(chunks, past).mT());
      slots.summaries =
          at::matmul(q, heads_first(past.summaries.keys()).mT()) +
          repeated(at::gather(to_chunks, 3,
                              apart.clamp_min(0).expand({q.size(0), q.size(1), time, chunks})));
      slots.summary_hidden = repeated((apart < 0).view({1, 1, time, chunks}));
    }
    const std::vector<at::Tensor> weights = weights_of(slots, {}, {});
    at::Tensor out = at::matmul(weights[0], values);
    if (chunks > 0) {
      out += at::matmul(weights[1], heads_first(past.summaries.values()));
    }
    const std::int64_t kept = std::min(held, window - 1);
    past.window_k = keys.narrow(2, held - kept, kept).clone();
    past.window_v = values.narrow(2, held - kept, kept).clone();
    past.tokens += time;
    return out.transpose(1, 2);
  }

  // Adds the tokens to the open chunk, and the summaries of chunks that are full to the others.
  void close_chunks(const std::vector<at::Tensor>& parts, LongShortState& past) const {
    const auto joined = [](const at::Tensor& old, const at::Tensor& fresh) {
      return old.defined() ? at::cat({old, fresh}, 1) : fresh;
    };
    const at::Tensor k = joined(past.open_k, parts[kKey]);
    const at::Tensor v = joined(past.open_v, parts[kValue]);
    const at::Tensor logits = joined(past.open_logits, parts[kLogits]);
    const std::int64_t chunks = k.size(1) / config_.chunk;
    const std::int64_t closed = chunks * config_.chunk;
    if (chunks > 0) {
      const auto cut = [&](const at::Tensor& x) {
        return heads_first(x.narrow(1, 0, closed)).unflatten(2, {chunks, config_.chunk});
      };
      const at::Tensor weights = at::softmax(cut(logits), 3).mT();
      past.summaries.append(normed_summaries(at::matmul(weights, cut(k))).transpose(1, 2),
                            normed_summaries(at::matmul(weights, cut(v))).transpose(1, 2));
    }
    const auto rest = [&](const at::Tensor& x) {
      return x.narrow(1, closed, x.size(1) - closed).clone();
    };
    past.open_k = rest(k);
    past.open_v = rest(v);
    past.open_logits = rest(logits);
  }

  // Those of distances below `count`; made ahead in doubling steps.
  [[nodiscard]] at::Tensor far_vectors(std::int64_t count, LongShortState& past) const {
    const std::int64_t there = past.far.defined() ? past.far.size(1) : 0;
    if (there < count) {
      past.far = far_->forward(0, std::max(count, 2 * there)).contiguous();
    }
    return past.far.narrow(1, 0, count);
  }

  TransformerLsConfig config_;
  AttentionSettings settings_;
  std::int64_t rank_;
  double scale_;
  LinearGroup joint_;
  std::shared_ptr<Linear> out_;
  std::shared_ptr<Distances> near_;  // these four: null or undefined where bidirectional
  std::shared_ptr<Distances> far_;
  at::Tensor key_bias_;
  at::Tensor distance_bias_;
  std::shared_ptr<NearlyUnitNorm> summary_norm_;
  std::shared_ptr<NearlyUnitNorm> window_norm_;
};

std::shared_ptr<Attention> TransformerLsConfig::make(const AttentionSettings& settings) const {
  return std::make_shared<TransformerLs>(*this, settings);
}

[[maybe_unused]] const bool kAdded = add_attention<TransformerLsConfig>();

}  // namespace
}  // namespace transnormer
