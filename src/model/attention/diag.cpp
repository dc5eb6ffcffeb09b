// DiagAttention: ordinary attention inside non-overlapping blocks.
#include "model/attention/diag.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>

#include "model/attention/key_value_cache.h"
#include "model/attention/registry.h"
#include "ops/attention/block_attention.h"

namespace transnormer {
namespace {

class DiagAttention : public ProjectedAttention {
 public:
  DiagAttention(const DiagAttentionConfig& config, const AttentionSettings& settings)
      : ProjectedAttention(settings, usual_heads(settings), 1, config.output_norm),
        config_(config),
        scale_(1 / std::sqrt(static_cast<double>(settings.head_dim()))) {}

  // The keys and values of the block that is being filled.
  [[nodiscard]] std::unique_ptr<AttentionState> make_state(std::int64_t) const override {
    return std::make_unique<KeyValueCache>(config_.block);
  }

  // Of a block that is full.
  [[nodiscard]] StateBytes state_bytes(at::ScalarType compute) const override {
    return {.fixed = kept_keys_and_values(compute).per_token * static_cast<double>(config_.block)};
  }

  [[nodiscard]] double flops_per_token(std::int64_t length) const override {
    return 4 * static_cast<double>(settings().inner_dim()) *
           mean_seen(std::min(config_.block, length));
  }

 protected:
  [[nodiscard]] at::Tensor attend(const Projected& in, const ForwardContext& context,
                                  AttentionState* state) override {
    const auto& [q, k, v, x] = in;
    // Blocks begin at multiples of their length, unless positions are named.
    const ops::Encoding encoded =
        encoding(context, context.positions.defined() ? 0 : config_.block);
    if (state == nullptr) {
      TORCH_CHECK(!context.shares_sequences() || q.size(1) % config_.block == 0,
                  "diag: a rank's part of a sequence must be made of whole blocks");
      return whole_blocks(q, k, v, context, encoded);
    }
    return go_on(ops::encode(q, encoded), ops::encode(k, encoded), v, context,
                 static_cast<KeyValueCache&>(*state));
  }

 private:
  // From a block's start on.
  [[nodiscard]] at::Tensor whole_blocks(const at::Tensor& q, const at::Tensor& k,
                                        const at::Tensor& v, const ForwardContext& context,
                                        const ops::Encoding& encoded) const {
    return ops::block_attention(
        q, k, v,
        {.score = config_.score,
         .block = config_.block,
         .scale = scale_,
         .dropout = context.training ? settings().dropout : 0,
         .dropout_key = context.dropout_key(settings().random_key, DropoutSite::attention_weights,
                                            settings().heads * config_.block),
         .encoding = encoded,
         .visibility = context.visibility});
  }

  // With queries and keys that are encoded: first the rest of the block that the cache holds, then
  // what starts new blocks.
  [[nodiscard]] at::Tensor go_on(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                 const ForwardContext& context, KeyValueCache& cache) const {
    const std::int64_t time = q.size(1);
    const std::int64_t rest = cache.size() == 0 ? 0 : std::min(time, config_.block - cache.size());
    at::Tensor finished;
    if (rest > 0) {
      cache.append(k.narrow(1, 0, rest), v.narrow(1, 0, rest));
      finished = ops::attention_step(q.narrow(1, 0, rest), cache.keys(), cache.values(),
                                     config_.score, scale_);
      if (cache.size() == config_.block) {
        cache.clear();
      }
      if (rest == time) {
        return finished;
      }
    }
    const std::int64_t fresh = time - rest;
    const at::Tensor started = whole_blocks(q.narrow(1, rest, fresh), k.narrow(1, rest, fresh),
                                            v.narrow(1, rest, fresh), context, {});
    const std::int64_t left = fresh % config_.block;
    if (left > 0) {
      cache.append(k.narrow(1, time - left, left), v.narrow(1, time - left, left));
    }
    return finished.defined() ? at::cat({finished, started}, 1) : started;
  }

  DiagAttentionConfig config_;
  double scale_;
};

}  // namespace

void DiagAttentionConfig::visit(FieldVisitor& visitor) {
  visit_choice(visitor,
               {"score", "How scores become weights: softmax, or ReLU without a sum (ReLA)"}, score,
               kScoreNames);
  visitor.integer({"block", "Length of the non-overlapping blocks", OnResume::refuse, "tokens"},
                  block, {1, kMaxSize});
  visit_choice(visitor, {"output_norm", "Norm of the merged heads"}, output_norm, kOutputNormNames);
}

std::shared_ptr<Attention> DiagAttentionConfig::make(const AttentionSettings& settings) const {
  return std::make_shared<DiagAttention>(*this, settings);
}

namespace {
[[maybe_unused]] const bool kAdded = add_attention<DiagAttentionConfig>();
}  // namespace

}  // namespace transnormer
