// Linear attention of features that are made of queries and keys by tensor operations.
#pragma once

#include <memory>
#include <vector>

#include "model/attention/attention.h"
#include "ops/attention/linear_attention.h"

namespace transnormer {

class FeatureAttention : public ProjectedAttention {
 public:
  [[nodiscard]] std::unique_ptr<AttentionState> make_state(std::int64_t batch) const override;
  [[nodiscard]] StateBytes state_bytes(at::ScalarType compute) const override;
  // The state's update and its reading; how the chunks are cut is not counted.
  [[nodiscard]] double flops_per_token(std::int64_t length) const override;
  // .. and the features.
  [[nodiscard]] double kept_bytes_per_token(at::ScalarType compute) const override;

 protected:
  // feature_dim: of a head's features; options: floor, logarithms.
  FeatureAttention(const AttentionSettings& settings, const ProjectionStarts& starts,
                   std::int64_t feature_dim, const ops::LinearAttentionOptions& options);

  // Whose features they are.
  struct Of {
    bool query = true;       // else of keys
    std::int64_t first = 0;  // the first token's number among those of its row, from 0
  };
  // x: [rows, time, heads, head_dim] with LRPE, fp32 -> [rows, time, heads, feature_dim], fp32; of
  // each token by itself, the same when called again.
  [[nodiscard]] virtual at::Tensor feature(const at::Tensor& x, const Of& of,
                                           const ForwardContext& context) = 0;

  [[nodiscard]] at::Tensor attend(const Projected& in, const ForwardContext& context,
                                  AttentionState* state) override;

 private:
  [[nodiscard]] at::Tensor features(const at::Tensor& x, const Of& of,
                                    const ForwardContext& context);

  std::int64_t feature_dim_;
  ops::LinearAttentionOptions options_;
};

}  // namespace transnormer
