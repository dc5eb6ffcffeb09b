// Attentions to a few keys and values that sum up the sequence: bidirectional, without LRPE, since
// what is summed up has no position, and without decoding.
#pragma once

#include <cstdint>
#include <memory>

#include "model/attention/attention.h"

namespace transnormer {

// softmax(q·k / sqrt(head_dim)) v with k, v = summarize(..), over the real tokens of each segment.
// Dropout on the weights.
class SummaryAttention : public ProjectedAttention {
 public:
  explicit SummaryAttention(const AttentionSettings& settings);

  [[nodiscard]] std::unique_ptr<AttentionState> make_state(std::int64_t) const override {
    return nullptr;
  }
  [[nodiscard]] StateBytes state_bytes(at::ScalarType) const override { return {}; }

 protected:
  // k, v: [rows, keys, heads, head_dim] in the type of the products; counts: int64 [rows], how many
  // of the keys each row has, or undefined: all.
  struct Summary {
    at::Tensor k;
    at::Tensor v;
    at::Tensor counts;
  };

  // Of k, v [rows, time, heads, head_dim], zero behind a row's last token; lengths: as ops::OfRows
  // has them.
  [[nodiscard]] virtual Summary summarize(const at::Tensor& k, const at::Tensor& v,
                                          const at::Tensor& lengths) const = 0;
  // Into how many keys and values a row of `time` places is summed up.
  [[nodiscard]] virtual std::int64_t summaries_of(std::int64_t time) const = 0;

  [[nodiscard]] at::Tensor attend(const Projected& in, const ForwardContext& context,
                                  AttentionState* state) override;

 private:
  double scale_;
};

}  // namespace transnormer
