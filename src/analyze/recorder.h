// A pass of which everything that the attentions work on is kept, for one window.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "analyze/subject.h"
#include "model/context.h"
#include "model/transnormer.h"

namespace transnormer {

// An attention with queries, keys and values.
struct AttentionRecord {
  AttentionInside inside;
  at::Tensor normed;  // undefined where it has no norm of its own
};

struct LayerRecord {
  at::Tensor x;                             // the stream at its start, without gradients
  ForwardContext context;                   // of its block, without an observer
  std::vector<AttentionRecord> attentions;  // none where it has no queries, keys and values
};

// By layer. With gradients, those of the mean loss of the next token over the window, with respect
// to q, k, v, `merged` and `normed`, are their grad(); those of the weights are dropped.
[[nodiscard]] std::vector<LayerRecord> record_pass(TransNormer& model, const Window& window,
                                                   bool with_gradients);

// What each token of the layer takes from each, as a pass with this record had it: fp32 [heads,
// time, time]. `model`: the recorded one, or another whose attention is asked on the same stream.
[[nodiscard]] at::Tensor weights_of(TransNormer& model, std::int64_t layer,
                                    const LayerRecord& record);

}  // namespace transnormer
