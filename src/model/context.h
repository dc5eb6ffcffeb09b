// What flows through the layers beside the activations.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "dist/group.h"
#include "ops/attention/visibility.h"
#include "ops/dropout.h"
#include "ops/runtime/stop_check.h"
#include "ops/weights/embedding.h"

namespace transnormer {

// Where dropout happens inside a layer; the numbers are part of the random keys.
enum class DropoutSite : std::int64_t {
  embedding = 0,
  attention = 1,
  ffn = 2,
  attention_weights = 3
};

// Told, while a backward pass runs, which gradients are whole.
class GradientWatcher {
 public:
  virtual ~GradientWatcher() = default;
  // Those of all parameters that act on the residual stream behind its place before this layer;
  // model.layers: behind the last one. By falling layers, in each pass.
  virtual void on_gradients_behind(std::int64_t layer) = 0;
  // Where the embedding leaves the gradient of its rows, instead of adding it; null: it adds.
  [[nodiscard]] virtual ops::RowGradients* embedding_rows() = 0;
};

struct ForwardContext;

// What stands inside an attention during a pass, before its output projection.
struct AttentionInside {
  at::Tensor q;  // [batch, time, heads, key_dim], as projected; k alike
  at::Tensor k;
  at::Tensor v;       // [batch, time, heads, value_dim]
  at::Tensor merged;  // [batch, time, heads * value_dim]: what the weights make of v
  // q and k as they meet, without gradients: products of them are scores, but for a scale.
  at::Tensor scored_q;
  at::Tensor scored_k;
};

// Told, during a pass without a state, what the attentions work on. The tensors are those of the
// pass: whoever retains their gradients finds them there after the backward pass.
class AttentionObserver {
 public:
  virtual ~AttentionObserver() = default;
  // The residual stream at the start of a layer, and the context its block gets. What comes until
  // the next call is of this layer.
  virtual void on_layer(std::int64_t layer, const at::Tensor& x, const ForwardContext& context) = 0;
  // Of attentions with queries, keys and values; twice where a layer has two.
  virtual void on_attention(const AttentionInside& inside) = 0;
  // `merged` after the attention's own norm, where it has one.
  virtual void on_normed(const at::Tensor& normed) = 0;
};

struct ForwardContext {
  at::ScalarType compute = at::kFloat;  // type of the matrix products
  bool training = false;                // dropout on
  bool activation_checkpointing = false;
  std::uint64_t seed = 0;
  std::int64_t update = 0;
  std::int64_t first_sample = 0;  // global number of the batch's first row
  // Where both stand instead, in the GPU's memory, for a pass that is captured (GraphedPass).
  const ops::kernels::LiveCounters* live = nullptr;
  // Whose ranks hold the batch's sequences, rank r the r-th of equally long neighbouring parts;
  // null or of one: they are whole. All ranks make the same calls, and the backward pass too; the
  // group must live until that is over. Loss and gradients are each rank's share, to be summed.
  const dist::Group* sequence = nullptr;
  // Of the batch's first token; set by the model from the state or the rank.
  std::int64_t first_position = 0;
  // Which tokens there are and which of them a token sees; `causal` is the model's own, set by it.
  ops::Visibility visibility{};
  at::Tensor positions{};  // int64 [batch, time], in the place of first_position + t; or undefined
  // Asked before each layer, forward and backward, and before each slice of the loss; it must live
  // as long as the pass. Captured passes do not ask. Where ranks share sequences it must answer
  // alike on all.
  const ops::ShouldStop* should_stop = nullptr;
  // It must live as long as the pass, which is not captured then.
  GradientWatcher* watcher = nullptr;
  // For analysis, else null; it must live as long as the pass, which is not captured and whose
  // layers are not recomputed then.
  AttentionObserver* observer = nullptr;

  [[nodiscard]] bool shares_sequences() const {
    return sequence != nullptr && sequence->size() > 1;
  }

  // elements: of what is dropped, for each token.
  [[nodiscard]] ops::DropoutKey dropout_key(std::int64_t layer, DropoutSite site,
                                            std::int64_t elements) const {
    return {.seed = seed,
            .update = update,
            .layer = layer,
            .site = static_cast<std::int64_t>(site),
            .first_sample = first_sample,
            .first_element = first_position * elements,
            .live = live};
  }
};

// What one layer, or an attention inside it, remembers between calls.
class AttentionState {
 public:
  virtual ~AttentionState() = default;
  [[nodiscard]] virtual std::int64_t bytes() const = 0;
};

// What a model remembers between calls: how many tokens it has seen, and each layer's state.
struct ModelState {
  std::int64_t position = 0;
  std::vector<std::unique_ptr<AttentionState>> layers;

  [[nodiscard]] std::int64_t bytes() const {
    std::int64_t sum = 0;
    for (const auto& layer : layers) {
      sum += layer->bytes();
    }
    return sum;
  }
};

}  // namespace transnormer
