#include "analyze/recorder.h"

#include <ATen/ATen.h>

#include "data/samples.h"
#include "model/block.h"
#include "task/causal.h"

namespace transnormer {
namespace {

class Recorder final : public AttentionObserver {
 public:
  void on_layer(std::int64_t, const at::Tensor& x, const ForwardContext& context) override {
    layers.push_back({.x = x.detach().clone(), .context = context, .attentions = {}});
    layers.back().context.observer = nullptr;
  }
  void on_attention(const AttentionInside& inside) override {
    for (const at::Tensor& tensor : {inside.q, inside.k, inside.v, inside.merged}) {
      retain(tensor);
    }
    layers.back().attentions.push_back({.inside = inside, .normed = {}});
  }
  void on_normed(const at::Tensor& normed) override {
    retain(normed);
    layers.back().attentions.back().normed = normed;
  }

  std::vector<LayerRecord> layers;

 private:
  static void retain(const at::Tensor& tensor) {
    if (tensor.requires_grad()) {
      tensor.retain_grad();
    }
  }
};

}  // namespace

std::vector<LayerRecord> record_pass(TransNormer& model, const Window& window,
                                     bool with_gradients) {
  const at::AutoGradMode mode(with_gradients);
  Recorder recorder;
  ForwardContext context;
  context.observer = &recorder;
  if (!with_gradients) {
    (void)model.forward(window.inputs, context);
    return std::move(recorder.layers);
  }
  const auto count = window.targets.ne(kIgnoredTarget).sum().item<double>();
  const at::Tensor scale = at::full({}, 1 / count, window.inputs.options().dtype(at::kFloat));
  causal_loss(model, {{"inputs", window.inputs}, {"targets", window.targets}}, context, scale)
      .scaled.backward();
  model.zero_grad();
  return std::move(recorder.layers);
}

at::Tensor weights_of(TransNormer& model, std::int64_t layer, const LayerRecord& record) {
  const at::NoGradGuard no_gradients;
  return model.blocks()[static_cast<std::size_t>(layer)]
      ->attention_weights(record.x, record.context)
      .squeeze(0);
}

}  // namespace transnormer
