// Attention among tokens of one bucket (Kitaev et al. 2020, "Reformer"). Queries and keys are one
// vector q = W_q x, and a bucket is the direction nearest to it: argmax [R q; -R q] with random R,
// in several rounds. Scores are q_i.q_j / |q_j|, without 1 / sqrt(dh); the rounds are joined by the
// logarithms of their sums, which makes one softmax over what a token sees in all of them.
// Itself a token sees with a score of -1e5: where there is nothing else.
//
// Bidirectional: each round's tokens, ordered by bucket and then by place, are cut into chunks; one
// sees its own chunk and the one before, the first of a round the last of the round before, in a
// circle, whatever the buckets (as published, but that padding is left out).
// Causal: no mask makes that causal, since the chunks' borders move with later tokens. Instead a
// token sees, in each round, the newest `chunk` earlier tokens of its own bucket.
//
// The published code has a projection of keys and biases of queries and values that nothing uses.
// They are kept and counted: `k_proj`, `q_proj.bias` and `v_proj.bias` have no gradients.
#include <ATen/ATen.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <optional>

#include "config/fields.h"
#include "model/attention/key_value_cache.h"
#include "model/attention/random_features.h"
#include "model/attention/registry.h"
#include "model/attention/unit_values.h"
#include "ops/attention/groups.h"
#include "ops/attention/hashed_attention.h"
#include "ops/weights/linear.h"

namespace transnormer {
namespace {

constexpr double kKeyEps = 1e-6;  // added to the mean square of a key
constexpr std::int64_t kDecodedAtOnce = 64;

struct ReformerConfig {
  static constexpr const char* kName = "reformer";
  static constexpr const char* kHelp =
      "Attention among tokens of one bucket by locality-sensitive hashing (Reformer)";
  static constexpr const char* kFormula = "softmax(q·q' / norm(q')) inside hash buckets";
  static constexpr const char* kCost = "O(n c)";
  static constexpr Abilities kAbilities{.lrpe = false, .separate_queries = false};

  std::int64_t chunk = 64;
  std::int64_t hashes = 2;

  void visit(FieldVisitor& visitor) {
    visitor.integer({"chunk",
                     "Tokens of a bucket that are seen in a round; bidirectional: length of "
                     "the chunks",
                     OnResume::refuse, "tokens"},
                    chunk, {1, kMaxSize});
    visitor.integer({"hashes", "Rounds of hashing"}, hashes, {1, 64});
  }
  [[nodiscard]] std::shared_ptr<Attention> make(const AttentionSettings& settings) const;
  bool operator==(const ReformerConfig&) const = default;
};

// 2^floor(log2(2 positions / chunk)), at least 2.
std::int64_t bucket_count(std::int64_t positions, std::int64_t chunk) {
  return std::max<std::int64_t>(
      2, static_cast<std::int64_t>(std::bit_floor(
             static_cast<std::uint64_t>(2 * std::max<std::int64_t>(positions, 0) / chunk))));
}

// Has the tensors of a Linear and applies none of them.
class IdleLinear : public torch::nn::Module, public Initializable {
 public:
  IdleLinear(std::int64_t in, std::int64_t out, at::Device device)
      : weight_(register_parameter("weight", at::empty({out, in}, at::device(device)))),
        bias_(register_parameter("bias", at::empty({out}, at::device(device)))) {}
  void initialize(const Initializer& initializer, const std::string& prefix) override {
    const double bound = 1 / std::sqrt(static_cast<double>(weight_.size(1)));
    initializer.uniform(weight_, prefix + "weight", bound);
    initializer.uniform(bias_, prefix + "bias", bound);
  }

 private:
  at::Tensor weight_;
  at::Tensor bias_;
};

// Of all tokens: the keys, normed, the values, and the buckets of each round.
struct ReformerState : AttentionState, RepeatableState {
  [[nodiscard]] std::int64_t bytes() const override { return tokens.bytes() + buckets.bytes(); }
  void repeat(std::int64_t times) override {
    tokens.repeat(times);
    buckets.repeat(times);
  }
  KeyValueCache tokens{std::numeric_limits<std::int64_t>::max()};
  KeyValueCache buckets{std::numeric_limits<std::int64_t>::max()};  // as keys; no values
};

// Tokens ordered by bucket, in each of `rows` sequences of `time`: [sequences, time].
struct Order {
  at::Tensor bucket;  // in that order
  at::Tensor token;   // which stands there
};

class Reformer : public Attention, public Initializable {
 public:
  Reformer(const ReformerConfig& config, const AttentionSettings& settings)
      : config_(config),
        settings_(settings),
        buckets_(bucket_count(settings.max_positions, config.chunk)),
        rotations_(*this, {settings.heads, config.hashes * buckets_ / 2, settings.head_dim()},
                   Directions::independent, /*redraw=*/true, settings) {
    const std::int64_t inner = settings.inner_dim();
    const at::Tensor weight = at::empty({2 * inner, settings.dim}, at::device(settings.device));
    const auto part = [&](const char* name, std::int64_t first) {
      return register_module(
          name,
          std::make_shared<Linear>(weight.narrow(0, first, inner).detach(),
                                   at::empty({inner}, at::device(settings.device)), LinearStart{}));
    };
    const auto query = part("q_proj", 0);
    register_module("k_proj", std::make_shared<IdleLinear>(settings.dim, inner, settings.device));
    const auto value = part("v_proj", inner);
    product_ = ops::Weight(weight, {query->weight(), value->weight()});
    out_ = register_module(
        "out_proj", std::make_shared<Linear>(inner, settings.dim, LinearStart{}, settings.device));
  }

  void initialize(const Initializer& initializer, const std::string& prefix) override {
    rotations_.initialize(initializer, prefix);
  }

  [[nodiscard]] at::Tensor forward(const at::Tensor& x, const ForwardContext& context,
                                   AttentionState* state) override {
    const auto [q, v] = project(x, context);
    const at::Tensor attended = state == nullptr
                                    ? attend(q, v, context)
                                    : go_on(q, v, context, static_cast<ReformerState&>(*state));
    return out_->forward(attended.to(context.compute).flatten(2), context.compute);
  }

  [[nodiscard]] at::Tensor weights(const at::Tensor& x, const ForwardContext& context) override {
    const at::NoGradGuard no_gradients;
    const at::Tensor q = project(x, context).q;
    return weights_of_values(x.size(0), x.size(1), settings_.heads, settings_.head_dim(),
                             x.device(),
                             [&](const at::Tensor& v) { return attend(q, v, context); });
  }

  [[nodiscard]] bool can_be_captured() const override { return rotations_.can_be_captured(); }

  [[nodiscard]] std::unique_ptr<AttentionState> make_state(std::int64_t) const override {
    return std::make_unique<ReformerState>();
  }

  [[nodiscard]] StateBytes state_bytes(at::ScalarType compute) const override {
    const auto inner = static_cast<double>(settings_.inner_dim());
    return {.per_token = inner * (4 + static_cast<double>(c10::elementSize(compute))) +
                         8 * static_cast<double>(settings_.heads * config_.hashes)};
  }

  // Buckets are taken to be of one size.
  [[nodiscard]] double flops_per_token(std::int64_t length) const override {
    const auto inner = static_cast<double>(settings_.inner_dim());
    const auto hashes = static_cast<double>(config_.hashes);
    const auto buckets = static_cast<double>(buckets_);
    const double earlier = static_cast<double>(length - 1) / (2 * buckets);
    const double seen =
        settings_.causal
            ? std::clamp(earlier, 1.0, std::max(1.0, static_cast<double>(config_.chunk)))
            : static_cast<double>(std::min(2 * config_.chunk, length));
    return inner * hashes * (buckets + 4 * seen);
  }

  // Queries and values, the same and normed keys in fp32, what was attended and its normaliser, the
  // merged heads.
  [[nodiscard]] double kept_bytes_per_token(at::ScalarType) const override {
    return 4 *
           (7 * static_cast<double>(settings_.inner_dim()) + static_cast<double>(settings_.heads));
  }

  [[nodiscard]] std::vector<ParameterGroup> groups() const override {
    std::vector<ParameterGroup> groups;
    for (const char* name : {"q_proj", "v_proj", "out_proj"}) {
      groups.push_back({name, named_children()[name]->parameters()});
    }
    return groups;
  }

 private:
  struct QueriesAndValues {
    at::Tensor q;  // [batch, time, heads, head_dim]
    at::Tensor v;  // the same
  };

  [[nodiscard]] QueriesAndValues project(const at::Tensor& x, const ForwardContext& context) const {
    const std::vector<at::Tensor> parts =
        ops::linear(x, product_, {}, context.compute)
            .unflatten(-1, {2, settings_.heads, settings_.head_dim()})
            .unbind(2);
    return {.q = parts[0], .v = parts[1]};
  }

  [[nodiscard]] static at::Tensor normed(const at::Tensor& q) {
    const auto dim = static_cast<double>(q.size(-1));
    return q * (q.square().sum(-1, true) + dim * kKeyEps).rsqrt();
  }

  // q: fp32 [rows, heads, time, head_dim] -> int64 [rows, heads, rounds, time].
  [[nodiscard]] at::Tensor buckets_of(const at::Tensor& q, const ForwardContext& context) {
    const at::NoGradGuard no_gradients;
    const at::Tensor along =
        at::matmul(q, rotations_.get(context).mT()).unflatten(-1, {config_.hashes, buckets_ / 2});
    const auto [most, up] = along.max(-1);
    const auto [least, down] = along.min(-1);
    return at::where(most >= -least, up, down + buckets_ / 2).transpose(2, 3).contiguous();
  }

  // fp32, the sizes of v, which may have another width than q.
  [[nodiscard]] at::Tensor attend(const at::Tensor& q, const at::Tensor& v,
                                  const ForwardContext& context) {
    return ops::by_rows(
        context.visibility, {q, v},
        [&](const std::vector<at::Tensor>& rows, const at::Tensor& lengths) {
          const auto flat = [](const at::Tensor& x) {
            return x.to(at::kFloat).transpose(1, 2).contiguous();
          };
          const at::Tensor query = flat(rows[0]);
          const at::Tensor value = flat(rows[1]);
          at::Tensor bucket = buckets_of(query, context);
          const std::int64_t time = query.size(2);
          if (lengths.defined()) {
            bucket.masked_fill_(ops::is_token(lengths, time).logical_not().view({-1, 1, 1, time}),
                                buckets_);
          }
          const at::Tensor flat_query = query.flatten(0, 2);
          return ops::hashed_attention(
                     flat_query, normed(flat_query), value.flatten(0, 2),
                     settings_.causal ? by_bucket(bucket) : by_chunk(bucket, lengths))
              .view(value.sizes())
              .transpose(1, 2);
        });
  }

  [[nodiscard]] static Order ordered(const at::Tensor& bucket) {
    auto [sorted, token] = at::sort(bucket.flatten(0, 2), std::optional<bool>(true), /*dim=*/1);
    return {.bucket = sorted, .token = token};
  }

  // From where those stand that are [sequences, time] in order.
  [[nodiscard]] ops::HashedPlaces placed(const at::Tensor& bucket, const Order& order,
                                         const at::Tensor& place_in_order,
                                         const at::Tensor& group_in_order, std::int64_t length,
                                         std::int64_t blocks) const {
    const std::int64_t sequences = order.token.size(0);
    const std::int64_t time = order.token.size(1);
    const auto integers = bucket.options();
    const at::Tensor token =
        at::arange(sequences, integers).floor_divide(config_.hashes).unsqueeze(1) * time +
        order.token;
    const at::Tensor places = place_in_order.flatten();
    return {
        .length = length,
        .place = at::empty_like(order.token)
                     .scatter_(1, order.token, place_in_order)
                     .view({-1, config_.hashes, time})
                     .transpose(0, 1)
                     .flatten(1)
                     .contiguous(),
        .source = at::zeros({blocks * length}, integers).index_copy_(0, places, token.flatten()),
        .group = at::full({blocks * length}, -1, integers)
                     .index_copy_(0, places, group_in_order.flatten()),
        .others = {},
        .reach = 0};
  }

  // Each bucket begins with a block, so that later tokens move none.
  [[nodiscard]] ops::HashedPlaces by_bucket(const at::Tensor& bucket) const {
    const Order order = ordered(bucket);
    const std::int64_t time = bucket.size(3);
    const std::int64_t length = (std::min(config_.chunk, time) + 1) / 2;
    const auto integers = bucket.options();
    const std::int64_t sequences = order.token.size(0);
    const std::int64_t kinds = buckets_ + 1;  // that of filling behind the last token is the last
    const at::Tensor kind = at::arange(kinds, integers).expand({sequences, kinds}).contiguous();
    const at::Tensor first = at::searchsorted(order.bucket, kind);
    const at::Tensor count = at::searchsorted(order.bucket, kind, false, /*right=*/true) - first;
    const at::Tensor blocks = (count + (length - 1)).floor_divide(length).flatten();
    const at::Tensor end = blocks.cumsum(0);
    const at::Tensor start = ((end - blocks) * length).view({sequences, kinds});
    const at::Tensor place =
        start.gather(1, order.bucket) + at::arange(time, integers) - first.gather(1, order.bucket);
    const at::Tensor group = at::arange(sequences, integers).unsqueeze(1) * kinds + order.bucket;
    const auto total = end[-1].item<std::int64_t>();
    ops::HashedPlaces places = placed(bucket, order, place, group, length, total);
    places.reach = config_.chunk;
    const std::int64_t behind = (std::min(config_.chunk, time) + length - 1) / length;
    for (std::int64_t shift = 1; shift <= behind; ++shift) {
      const at::Tensor own = at::arange(total, integers);
      places.others.push_back(at::where(own < shift, own, own - shift));
    }
    return places;
  }

  // Chunks in the order of each round, the first of a round behind the last of the round before.
  [[nodiscard]] ops::HashedPlaces by_chunk(const at::Tensor& bucket,
                                           const at::Tensor& lengths) const {
    const Order order = ordered(bucket);
    const std::int64_t time = bucket.size(3);
    const std::int64_t length = std::min(config_.chunk, time);
    const std::int64_t chunks = (time + length - 1) / length;
    const auto integers = bucket.options();
    const std::int64_t sequences = order.token.size(0);
    const at::Tensor sequence = at::arange(sequences, integers).unsqueeze(1);
    const at::Tensor place = sequence * (chunks * length) + at::arange(time, integers);
    const at::Tensor row = sequence.floor_divide(config_.hashes);  // of all its rounds
    const at::Tensor group = at::where(order.bucket < buckets_, row, at::full({}, -1, integers));
    ops::HashedPlaces places = placed(bucket, order, place, group, length, sequences * chunks);
    if (chunks > 1) {
      const at::Tensor tokens =
          lengths.defined()
              ? lengths.repeat_interleave(settings_.heads * config_.hashes).unsqueeze(1)
              : at::full({sequences, 1}, time, integers);
      const at::Tensor last = (tokens - 1).floor_divide(length);
      const at::Tensor chunk = at::arange(chunks, integers);
      const at::Tensor round_before =
          row * config_.hashes + (sequence - 1).remainder(config_.hashes);
      const at::Tensor before = sequence * chunks + at::where(chunk > last, chunk, chunk - 1);
      places.others.push_back(
          at::where(chunk == 0, round_before * chunks + last, before).flatten());
    }
    return places;
  }

  // Some queries at a time, against all keys: those of one's bucket that are the newest, as often
  // as there are rounds in which they are.
  [[nodiscard]] at::Tensor go_on(const at::Tensor& q, const at::Tensor& v,
                                 const ForwardContext& context, ReformerState& past) {
    const at::Tensor query = q.to(at::kFloat).transpose(1, 2);
    const at::Tensor bucket = buckets_of(query, context);  // [batch, heads, rounds, time]
    const std::int64_t before = past.tokens.size();
    const at::Tensor kept = bucket.permute({0, 3, 1, 2});
    past.tokens.append(normed(query).transpose(1, 2), v);
    past.buckets.append(kept, kept.narrow(3, 0, 0));
    const at::Tensor keys = past.tokens.keys().transpose(1, 2);
    const at::Tensor values = past.tokens.values().to(at::kFloat).transpose(1, 2);
    const at::Tensor buckets = past.buckets.keys().permute({0, 2, 3, 1});
    std::vector<at::Tensor> results;
    for (std::int64_t first = 0; first < q.size(1); first += kDecodedAtOnce) {
      const std::int64_t count = std::min(kDecodedAtOnce, q.size(1) - first);
      const std::int64_t seen = before + first + count;
      const at::Tensor earlier =
          at::ones({count, seen}, buckets.options().dtype(at::kBool)).tril(before + first - 1);
      const at::Tensor same =
          (bucket.narrow(3, first, count).unsqueeze(-1) == buckets.narrow(3, 0, seen).unsqueeze(-2))
              .logical_and_(earlier);
      const at::Tensor age = same.flip(-1).cumsum(-1).flip(-1);  // 1: the newest
      const at::Tensor rounds = same.logical_and(age <= config_.chunk).sum(2);
      const at::Tensor itself =
          at::eye(seen, buckets.options().dtype(at::kBool)).narrow(0, before + first, count);
      const at::Tensor scores =
          (at::matmul(query.narrow(2, first, count), keys.narrow(2, 0, seen).mT()) +
           rounds.to(at::kFloat).log())
              .masked_fill_(itself, ops::kScoreOfItself);
      results.push_back(at::matmul(at::softmax(scores, -1), values.narrow(2, 0, seen)));
    }
    return at::cat(results, 2).transpose(1, 2);
  }

  ReformerConfig config_;
  AttentionSettings settings_;
  std::int64_t buckets_;
  RandomFeatures rotations_;
  ops::Weight product_;
  std::shared_ptr<Linear> out_;
};

std::shared_ptr<Attention> ReformerConfig::make(const AttentionSettings& settings) const {
  return std::make_shared<Reformer>(*this, settings);
}

[[maybe_unused]] const bool kAdded = add_attention<ReformerConfig>();

}  // namespace
}  // namespace transnormer
