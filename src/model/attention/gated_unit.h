// The gated attention unit (Hua et al. 2022, "Transformer Quality in Linear Time"), in place of an
// attention and a feed-forward part; what `flash` and `flash_quad` share. A block by itself:
//   x + Wo (u * (A v)),  y = g x / sqrt(mean(x^2) + 1e-5),  u, v = silu(W y), z = silu(W_z y),
// queries and keys being z times a scale plus an offset of their own, turned by rotary positions:
// pairs (i, i + key_dim / 2) by t 10000^(-2i / key_dim). One head; no softmax, no dropout. Neither
// model.heads nor model.norm acts inside.
//
// The published module has two vectors that nothing uses. They are kept and counted, as
// `unused_scale` and `unused_offset`; they have no gradients.
#pragma once

#include <torch/nn/module.h>

#include <memory>
#include <string>
#include <vector>

#include "config/fields.h"
#include "model/attention/abilities.h"
#include "model/attention/attention.h"
#include "model/block.h"
#include "model/initializer.h"
#include "model/linear.h"

namespace transnormer {

struct GatedUnitConfig {
  std::int64_t expansion = 2;
  std::int64_t key_dim = 128;
  std::int64_t chunk = 64;

  void visit_unit(FieldVisitor& visitor, const char* chunk_help);
  [[nodiscard]] std::vector<std::string> faults(const AttentionSettings& settings) const;
  bool operator==(const GatedUnitConfig&) const = default;
};

// What the attention inside is made of; its tensors are "layers.I.attn.NAME".
class GatedUnitParts : public torch::nn::Module, public Initializable {
 public:
  // pairs: queries and keys in turn, "query", "key" and so on, each with NAME_scale and
  // NAME_offset.
  GatedUnitParts(const GatedUnitConfig& config, const BlockSettings& settings,
                 const std::vector<std::string>& pairs);

  struct Projected {
    at::Tensor u;  // [batch, time, width]
    at::Tensor v;  // the same
    at::Tensor z;  // [batch, time, key_dim]
  };
  [[nodiscard]] Projected project(const at::Tensor& x, at::ScalarType compute) const;
  [[nodiscard]] at::Tensor out(const at::Tensor& gated, at::ScalarType compute) const;
  // z: [rows, time, key_dim], positions: int64 [time] or [rows, time] -> the queries and keys in
  // turn, fp32 [rows, time, key_dim] each.
  [[nodiscard]] std::vector<at::Tensor> turned(const at::Tensor& z,
                                               const at::Tensor& positions) const;
  // The learned offsets of squared_relu_attention, fp32 [queries + keys - 1]; distances beyond the
  // table take its last entry.
  [[nodiscard]] at::Tensor offsets(std::int64_t queries, std::int64_t keys) const;

  void initialize(const Initializer& initializer, const std::string& prefix) override;

 private:
  std::int64_t width_;
  std::int64_t key_dim_;
  std::int64_t positions_;
  LinearGroup uvz_;
  std::shared_ptr<Linear> out_;
  at::Tensor norm_scale_;
  std::vector<at::Tensor> scales_;   // of the pairs
  std::vector<at::Tensor> offsets_;  // of the pairs
  at::Tensor offset_bias_;
  at::Tensor unused_scale_;
  at::Tensor unused_offset_;
};

class GatedUnit : public Block {
 public:
  GatedUnit(const GatedUnitConfig& config, const BlockSettings& settings,
            const std::vector<std::string>& pairs);

  [[nodiscard]] at::Tensor forward(const at::Tensor& x, const ForwardContext& context,
                                   AttentionState* state) final;
  [[nodiscard]] at::Tensor attention_weights(const at::Tensor& x,
                                             const ForwardContext& context) final;
  [[nodiscard]] BlockFlops flops_per_token(std::int64_t length) const final;
  [[nodiscard]] double kept_bytes_per_token(at::ScalarType compute) const final;
  // "u_proj", "v_proj", "z_proj", "out_proj".
  [[nodiscard]] std::vector<ParameterGroup> groups() const final;

 protected:
  // A v of rows without padding. z: [rows, time, key_dim]; v: [rows, time, any], zero behind a
  // row's last token; positions as above. Result: fp32, v's sizes.
  [[nodiscard]] virtual at::Tensor attend_rows(const at::Tensor& z, const at::Tensor& v,
                                               const at::Tensor& positions, bool causal) const = 0;
  // The same going on from a state.
  [[nodiscard]] virtual at::Tensor go_on(const at::Tensor& z, const at::Tensor& v,
                                         AttentionState& state) const = 0;
  // Of A v, a token.
  [[nodiscard]] virtual double attention_flops(std::int64_t length) const = 0;

  [[nodiscard]] const GatedUnitParts& parts() const { return *parts_; }
  [[nodiscard]] const GatedUnitConfig& config() const { return config_; }
  [[nodiscard]] double mean_seen(std::int64_t tokens) const;
  [[nodiscard]] std::int64_t width() const { return width_; }
  [[nodiscard]] std::int64_t max_positions() const { return max_positions_; }
  [[nodiscard]] at::Device device() const { return device_; }

 private:
  [[nodiscard]] at::Tensor attend(const at::Tensor& z, const at::Tensor& v,
                                  const ForwardContext& context) const;

  GatedUnitConfig config_;
  std::int64_t layer_;
  std::int64_t dim_;
  std::int64_t width_;
  std::int64_t max_positions_;
  std::int64_t pairs_;
  bool causal_;
  at::Device device_;
  std::shared_ptr<GatedUnitParts> parts_;
};

}  // namespace transnormer
