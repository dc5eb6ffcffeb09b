// The usual block: an attention and a feed-forward part, each with its norm, its dropout and the
// residual stream around it.
#pragma once

#include <memory>
#include <vector>

#include "model/attention/attention.h"
#include "model/block.h"
#include "model/ffn.h"
#include "model/norm.h"
#include "ops/residual.h"

namespace transnormer {

// pre: x + drop(part(norm(x))); post: norm(x + drop(part(x))). The parts are `attn` and `ffn`, the
// norms `attn_norm` and `ffn_norm`.
class AttentionThenFfn : public Block {
 public:
  AttentionThenFfn(std::shared_ptr<Attention> attention, const BlockSettings& settings);

  [[nodiscard]] at::Tensor forward(const at::Tensor& x, const ForwardContext& context,
                                   AttentionState* state) override;
  [[nodiscard]] std::unique_ptr<AttentionState> make_state(std::int64_t batch) const override;
  [[nodiscard]] at::Tensor attention_weights(const at::Tensor& x,
                                             const ForwardContext& context) override;
  [[nodiscard]] StateBytes state_bytes(at::ScalarType compute) const override;
  [[nodiscard]] bool can_be_captured() const override;
  [[nodiscard]] std::optional<std::int64_t> most_positions() const override;
  [[nodiscard]] BlockFlops flops_per_token(std::int64_t length) const override;
  [[nodiscard]] double kept_bytes_per_token(at::ScalarType compute) const override;
  // Those of the attention, and "ffn".
  [[nodiscard]] std::vector<ParameterGroup> groups() const override;

 private:
  [[nodiscard]] at::Tensor forward_pre(const at::Tensor& x, const ForwardContext& context,
                                       AttentionState* state);
  [[nodiscard]] at::Tensor forward_post(const at::Tensor& x, const ForwardContext& context,
                                        AttentionState* state);
  [[nodiscard]] ops::Drop drop(DropoutSite site, const ForwardContext& context) const;

  std::int64_t layer_;
  std::int64_t dim_;
  std::int64_t ffn_dim_;
  NormPlacement placement_;
  double dropout_;
  std::shared_ptr<Norm> attention_norm_;
  std::shared_ptr<Attention> attention_;
  std::shared_ptr<Norm> ffn_norm_;
  std::shared_ptr<Ffn> ffn_;
};

}  // namespace transnormer
