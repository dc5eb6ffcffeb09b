// Linear attention: phi(q).phi(k) v over the visible tokens, or the last `window` of them, divided
// by the sum of phi(q).phi(k), at least 1e-6; no 1/sqrt(dh). LRPE after phi, in the numerator only.
// Katharopoulos et al. 2020 (elu1). `denominator` false leaves the division out (the failing row of
// table 1 in Qin et al. 2022). `key_dim_factor` widens queries and keys, since the rank of the map
// is at most their width.
//
// The published code subtracts each key's own maximum for e^x, which changes the weights, and lets
// signed features meet a divisor; here e^x is exact at any size (ops/attention/logarithms.h), with
// LRPE or a window for |k| below 700, and elu and silu need `denominator` false.
#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "config/fields.h"
#include "model/attention/key_value_cache.h"
#include "model/attention/linear_state.h"
#include "model/attention/registry.h"
#include "ops/attention/groups.h"
#include "ops/attention/linear_attention.h"
#include "ops/attention/window.h"

namespace transnormer {
namespace {

struct LinearAttentionConfig {
  static constexpr const char* kName = "linear";
  static constexpr const char* kHelp = "Linear attention of a feature map, by the sum of weights";
  static constexpr const char* kFormula = "phi(q)·phi(k), by their sum";
  static constexpr const char* kCost = "O(n), with a window O(n w)";
  static constexpr Abilities kAbilities{};

  FeatureMap kernel = FeatureMap::elu1;
  bool denominator = true;
  std::int64_t key_dim_factor = 1;
  std::int64_t window = 0;
  NormKind output_norm = NormKind::none;

  void visit(FieldVisitor& visitor);
  [[nodiscard]] Weighting weighting() const {
    return denominator ? Weighting::linear : Weighting::unnormalised;
  }
  [[nodiscard]] std::vector<std::string> faults(const AttentionSettings& settings) const;
  [[nodiscard]] std::shared_ptr<Attention> make(const AttentionSettings& settings) const;
  bool operator==(const LinearAttentionConfig&) const = default;
};

constexpr double kFloor = 1e-6;

// Keys before their features, with LRPE at hand, of the last window - 1 tokens.
struct WindowState : AttentionState, RepeatableState {
  explicit WindowState(std::int64_t most) : kept(most) {}
  [[nodiscard]] std::int64_t bytes() const override {
    return keys.defined() ? static_cast<std::int64_t>(keys.nbytes() + values.nbytes()) : 0;
  }
  void repeat(std::int64_t times) override {
    repeat_row(keys, times);
    repeat_row(values, times);
  }
  std::int64_t kept;
  at::Tensor keys;
  at::Tensor values;
};

class LinearAttention : public ProjectedAttention {
 public:
  LinearAttention(const LinearAttentionConfig& config, const AttentionSettings& settings)
      : ProjectedAttention(settings,
                           {.heads = settings.heads,
                            .key_dim = config.key_dim_factor * settings.head_dim(),
                            .value_dim = settings.head_dim()},
                           std::sqrt(0.5), config.output_norm),
        config_(config) {}

  [[nodiscard]] std::unique_ptr<AttentionState> make_state(std::int64_t batch) const override {
    if (config_.window > 0) {
      return std::make_unique<WindowState>(config_.window - 1);
    }
    ForwardContext nowhere;
    return std::make_unique<LinearState>(
        ops::LinearAttentionSums(batch, shape().heads, shape().key_dim, shape().value_dim,
                                 options(nowhere), settings().device));
  }

  [[nodiscard]] StateBytes state_bytes(at::ScalarType compute) const override {
    if (config_.window > 0) {
      return {.fixed = kept_keys_and_values(compute).per_token *
                       static_cast<double>(config_.window - 1)};
    }
    const bool wide = exact() && settings().lrpe;  // sums in double, without maxima
    const std::int64_t beside = config_.denominator ? (exact() && !wide ? 2 : 1) : 0;
    return {.fixed = (wide ? 8 : 4) *
                     static_cast<double>(shape().keys() * (shape().value_dim + beside))};
  }

  // In a window the scores and weights, and features; with exact exponentials in double.
  [[nodiscard]] double kept_bytes_per_token(at::ScalarType compute) const override {
    const double plain = ProjectedAttention::kept_bytes_per_token(compute);
    const double element = exact() ? 8 : 4;
    const auto features = static_cast<double>(shape().keys());
    if (config_.window > 0) {
      const double span = (settings().causal ? 2 : 3) * static_cast<double>(config_.window);
      const double scores = static_cast<double>(shape().heads) * span;
      return plain + element * ((config_.denominator ? 5 : 2) * scores + 6 * features);
    }
    return plain + (exact() ? (settings().lrpe ? 14 * element : 8.0) * features : 0);
  }

  // The state's update and its reading; how the chunks are cut is not counted.
  [[nodiscard]] double flops_per_token(std::int64_t length) const override {
    if (config_.window > 0) {
      const auto seen = static_cast<double>(std::min(config_.window, length));
      // All but the first tokens see a whole window, or two of them.
      const double pairs = settings().causal ? seen : 2 * seen - 1;
      return 2 * static_cast<double>(shape().keys() + shape().values()) * pairs;
    }
    return 4 * static_cast<double>(shape().keys() * shape().value_dim);
  }

 protected:
  [[nodiscard]] at::Tensor attend(const Projected& in, const ForwardContext& context,
                                  AttentionState* state) override {
    if (config_.window > 0) {
      return state == nullptr ? windowed(in, context)
                              : go_on(in, context, static_cast<WindowState&>(*state));
    }
    if (state == nullptr) {
      return ops::linear_attention(in.q, in.k, in.v, options(context));
    }
    return ops::linear_attention_step(in.q, in.k, in.v, static_cast<LinearState&>(*state).sums,
                                      options(context));
  }

  // With features; e^x is not formed by itself where it is exact.
  [[nodiscard]] Projected scored(const Projected& in,
                                 const ForwardContext& context) const override {
    ops::Encoding encoded = encoding(context);
    encoded.feature = config_.kernel;
    Projected met = in;
    met.q = ops::encode(in.q.to(at::kFloat), encoded);
    met.k = ops::encode(in.k.to(at::kFloat), encoded);
    return met;
  }

 private:
  // e^x under a division.
  [[nodiscard]] bool exact() const {
    return config_.denominator && config_.kernel == FeatureMap::exp;
  }

  [[nodiscard]] ops::LinearAttentionOptions options(const ForwardContext& context) const {
    ops::LinearAttentionOptions options{.encoding = encoding(context),
                                        .visibility = context.visibility};
    if (config_.denominator) {
      options.floor = kFloor;
    }
    if (exact()) {
      options.logarithms = true;
    } else {
      options.encoding.feature = config_.kernel;
    }
    return options;
  }

  // Features of queries or keys, in double where they are exact: of queries in a unit of its own
  // for each, which the division loses.
  [[nodiscard]] at::Tensor features(const at::Tensor& x, bool is_query) const {
    if (exact()) {
      const at::Tensor wide = x.to(at::kDouble);
      return (is_query ? wide - wide.detach().amax(-1, true) : wide).exp();
    }
    return ops::encode(x.to(at::kFloat), {.feature = config_.kernel});
  }
  [[nodiscard]] static at::Tensor turned(const at::Tensor& x, const ops::Encoding& lrpe) {
    return lrpe.theta.defined() ? ops::encode(x, lrpe) : x;
  }

  [[nodiscard]] at::Tensor windowed(const Projected& in, const ForwardContext& context) const {
    const auto prepare = [&](const std::vector<at::Tensor>& x, const ops::Encoding& lrpe) {
      const at::Tensor q = features(x[0], true), k = features(x[1], false);
      return std::vector<at::Tensor>{turned(q, lrpe), turned(k, lrpe), x[2], q, k};
    };
    const auto of_rows = [&](const std::vector<at::Tensor>& x, const at::Tensor& lengths) {
      const ops::Band band(x[0].size(1), config_.window, context.visibility.causal, lengths,
                           x[0].device());
      const auto seen = [&](const at::Tensor& q, const at::Tensor& k) {
        return scores(band, q, k).masked_fill(band.hidden(), 0);
      };
      const at::Tensor weights = seen(x[0], x[1]);
      if (!config_.denominator) {
        return band.apply(weights, x[2]);
      }
      const at::Tensor sum = (x[3].is_same(x[0]) ? weights : seen(x[3], x[4])).sum(-1, true);
      const at::Tensor divided = weights / divisor(sum);
      return band.apply(divided.to(at::kFloat), x[2]);
    };
    return ops::by_rows(context.visibility, {in.q, in.k, in.v}, of_rows, encoding(context), prepare)
        .to(in.q.scalar_type());
  }

  // What weights are divided by. Exact sums are zero in the place of no token only.
  [[nodiscard]] at::Tensor divisor(const at::Tensor& sum) const {
    return exact() ? sum.masked_fill(sum == 0, 1) : sum.clamp_min(kFloor);
  }

  // band.scores, or the same in double.
  [[nodiscard]] static at::Tensor scores(const ops::Band& band, const at::Tensor& q,
                                         const at::Tensor& k) {
    if (q.scalar_type() != at::kDouble) {
      return band.scores(q, k);
    }
    const std::int64_t end = band.blocks() * band.block();
    const std::int64_t behind = end - band.block() - band.before() + band.span() - q.size(1);
    const at::Tensor keys =
        at::constant_pad_nd(k.transpose(1, 2),
                            {0, 0, band.before(), std::max<std::int64_t>(behind, 0)})
            .unfold(2, band.span(), band.block())
            .narrow(2, 0, band.blocks());
    const at::Tensor queries = at::constant_pad_nd(q.transpose(1, 2), {0, 0, 0, end - q.size(1)})
                                   .unflatten(2, {band.blocks(), band.block()});
    return at::matmul(queries, keys);
  }

  [[nodiscard]] at::Tensor go_on(const Projected& in, const ForwardContext& context,
                                 WindowState& state) const {
    const ops::Encoding lrpe = encoding(context);
    const std::int64_t time = in.q.size(1);
    const std::int64_t past = state.keys.defined() ? state.keys.size(1) : 0;
    const at::Tensor keys = past > 0 ? at::cat({state.keys, in.k}, 1) : in.k;
    const at::Tensor values = past > 0 ? at::cat({state.values, in.v}, 1) : in.v;
    ops::Encoding from_past = lrpe;
    from_past.first_position = context.first_position - past;
    const at::Tensor q = features(in.q, true);
    const at::Tensor k = features(keys, false);
    const at::Tensor place = at::arange(past + time, q.options().dtype(at::kLong));
    const at::Tensor distance = place.narrow(0, past, time).unsqueeze(1) - place;
    const at::Tensor hidden = distance.lt(0).logical_or(distance.ge(config_.window));
    const auto seen = [&](const at::Tensor& a, const at::Tensor& b) {
      return at::matmul(a.transpose(1, 2), b.transpose(1, 2).mT()).masked_fill(hidden, 0);
    };
    at::Tensor weights = seen(turned(q, lrpe), turned(k, from_past));
    if (config_.denominator) {
      const at::Tensor sum = seen(q, k).sum(-1, true);
      weights = weights / divisor(sum);
    }
    const std::int64_t kept = std::min(past + time, state.kept);
    state.keys = keys.narrow(1, past + time - kept, kept).clone();
    state.values = values.narrow(1, past + time - kept, kept).clone();
    return at::matmul(weights.to(at::kFloat), values.transpose(1, 2).to(at::kFloat))
        .transpose(1, 2)
        .to(in.q.scalar_type());
  }

  LinearAttentionConfig config_;
};

void LinearAttentionConfig::visit(FieldVisitor& visitor) {
  visit_choice(visitor,
               {"kernel", "Feature map of queries and keys: 1 + elu, elu, relu, silu, or e^x"},
               kernel, kFeatureMapNames);
  visitor.flag({"denominator", "Divides by the sum of the weights"}, denominator);
  visitor.integer({"key_dim_factor", "Width of queries and keys, in widths of a head's values"},
                  key_dim_factor, {1, 1024});
  visitor.integer({"window", "Sees so many of the last tokens; 0: all", OnResume::refuse, "tokens"},
                  window, {0, kMaxSize});
  visit_choice(visitor, {"output_norm", "Norm of the merged heads"}, output_norm, kOutputNormNames);
}

std::vector<std::string> LinearAttentionConfig::faults(const AttentionSettings&) const {
  if (!denominator || (kernel != FeatureMap::elu && kernel != FeatureMap::silu)) {
    return {};
  }
  return {
      "kernel: expected \"elu1\", \"relu\" or \"exp\" under a denominator, since sums of signed "
      "features may be zero, got \"" +
      std::string(name_of<FeatureMap>(kFeatureMapNames, kernel)) +
      "\"; or set denominator to false"};
}

std::shared_ptr<Attention> LinearAttentionConfig::make(const AttentionSettings& settings) const {
  return std::make_shared<LinearAttention>(*this, settings);
}

[[maybe_unused]] const bool kAdded = add_attention<LinearAttentionConfig>();

}  // namespace
}  // namespace transnormer
