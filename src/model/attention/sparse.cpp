// Softmax attention to a sliding window and to every stride-th token. Child et al. 2019,
// "Generating Long Sequences with Sparse Transformers", both patterns in one softmax.
#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "config/fields.h"
#include "model/attention/key_value_cache.h"
#include "model/attention/registry.h"
#include "ops/attention/block_attention.h"
#include "ops/attention/groups.h"
#include "ops/attention/sparse_attention.h"

namespace transnormer {
namespace {

struct SparseAttentionConfig {
  static constexpr const char* kName = "sparse";
  static constexpr const char* kHelp = "Softmax attention to a window and to every stride-th token";
  static constexpr const char* kFormula = "softmax(q·k / sqrt(dh)), i - j < w or (i - j) mod s = 0";
  static constexpr const char* kCost = "O(n (w + n/s))";
  static constexpr Abilities kAbilities{};

  std::int64_t window = 64;
  std::int64_t stride = 64;

  void visit(FieldVisitor& visitor) {
    visitor.integer(
        {"window", "Tokens up to this one that it sees all of", OnResume::refuse, "tokens"}, window,
        {1, kMaxSize});
    visitor.integer({"stride", "Distance of the others that it sees", OnResume::refuse, "tokens"},
                    stride, {1, kMaxSize});
  }
  [[nodiscard]] std::shared_ptr<Attention> make(const AttentionSettings& settings) const;
  bool operator==(const SparseAttentionConfig&) const = default;
};

class SparseAttention : public ProjectedAttention {
 public:
  SparseAttention(const SparseAttentionConfig& config, const AttentionSettings& settings)
      : ProjectedAttention(settings, usual_heads(settings), std::sqrt(0.5), NormKind::none),
        window_(config.window),
        stride_(config.stride),
        scale_(1 / std::sqrt(static_cast<double>(settings.head_dim()))) {}

  // The keys and values of all tokens: each is seen again, a multiple of the stride later.
  [[nodiscard]] std::unique_ptr<AttentionState> make_state(std::int64_t) const override {
    return std::make_unique<KeyValueCache>(std::numeric_limits<std::int64_t>::max());
  }

  [[nodiscard]] StateBytes state_bytes(at::ScalarType compute) const override {
    return kept_keys_and_values(compute);
  }

  [[nodiscard]] double flops_per_token(std::int64_t length) const override {
    double pairs = 0;
    for (std::int64_t distance = 0; distance < length; ++distance) {
      if (distance < window_ || distance % stride_ == 0) {
        const bool both_ways = !settings().causal && distance > 0;
        pairs += static_cast<double>(length - distance) * (both_ways ? 2 : 1);
      }
    }
    return 4 * static_cast<double>(settings().inner_dim()) * pairs / static_cast<double>(length);
  }

 protected:
  [[nodiscard]] at::Tensor attend(const Projected& in, const ForwardContext& context,
                                  AttentionState* state) override {
    const ops::Encoding encoded = encoding(context);
    const at::Tensor q = ops::encode(in.q, encoded);
    const at::Tensor k = ops::encode(in.k, encoded);
    if (state == nullptr) {
      return whole(q, k, in.v, context);
    }
    auto& cache = static_cast<KeyValueCache&>(*state);
    if (cache.size() == 0) {
      cache.append(k, in.v);
      return whole(q, k, in.v, context);
    }
    std::vector<at::Tensor> steps;
    for (std::int64_t t = 0; t < q.size(1); ++t) {
      cache.append(k.narrow(1, t, 1), in.v.narrow(1, t, 1));
      steps.push_back(ops::attention_step(q.narrow(1, t, 1), seen_by_last(cache.keys()),
                                          seen_by_last(cache.values()), ScoreKind::softmax,
                                          scale_));
    }
    return at::cat(steps, 1);
  }

 private:
  [[nodiscard]] at::Tensor whole(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                 const ForwardContext& context) const {
    const ops::SparseAttentionOptions options{
        .window = window_, .stride = stride_, .scale = scale_, .causal = context.visibility.causal};
    const ops::SparseMasks masks = ops::sparse_dropout(
        q,
        {context.training ? settings().dropout : 0,
         context.dropout_key(settings().random_key, DropoutSite::attention_weights, 0)},
        context.visibility, options);
    std::vector<at::Tensor> operands{q, k};
    if (masks.window.defined()) {
      operands.insert(operands.end(), {masks.window, masks.strided});
    }
    operands.push_back(v);
    return ops::by_rows(context.visibility, operands,
                        [&](const std::vector<at::Tensor>& rows, const at::Tensor& lengths) {
                          ops::SparseMasks own;
                          if (masks.window.defined()) {
                            own = {.window = rows[2], .strided = rows[3], .before = masks.before};
                          }
                          return ops::sparse_attention(rows[0], rows[1], rows.back(), lengths, own,
                                                       options);
                        });
  }

  // Of all tokens' rows ([batch, tokens, heads, dim]) those that the last one sees: the window, and
  // before it one of each stride.
  [[nodiscard]] at::Tensor seen_by_last(const at::Tensor& rows) const {
    const std::int64_t last = rows.size(1) - 1;
    const std::int64_t window = std::min(window_, last + 1);
    const at::Tensor near = rows.narrow(1, last + 1 - window, window);
    const std::int64_t end = last + 1 - window;  // of those before the window
    const std::int64_t first = last % stride_;
    return first < end ? at::cat({rows.slice(1, first, end, stride_), near}, 1) : near;
  }

  std::int64_t window_;
  std::int64_t stride_;
  double scale_;
};

std::shared_ptr<Attention> SparseAttentionConfig::make(const AttentionSettings& settings) const {
  return std::make_shared<SparseAttention>(*this, settings);
}

[[maybe_unused]] const bool kAdded = add_attention<SparseAttentionConfig>();

}  // namespace
}  // namespace transnormer
