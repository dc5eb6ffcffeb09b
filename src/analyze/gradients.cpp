#include "analyze/gradients.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "analyze/settings.h"

namespace transnormer {
namespace {

constexpr double kNone = std::numeric_limits<double>::quiet_NaN();
constexpr std::int64_t kPairsKept = 65536;  // of a head, for the median

at::Tensor heads_chosen(const at::Tensor& tensor, std::int64_t dim,
                        const std::vector<std::int64_t>& heads) {
  return tensor.index_select(dim, at::tensor(heads, at::dtype(at::kLong)).to(tensor.device()));
}

// Keeps the larger, where the first may be no number yet.
void raise(double& largest, double value) {
  largest = std::isnan(largest) ? value : std::max(largest, value);
}

double median(std::vector<float>& values) {
  if (values.empty()) {
    return kNone;
  }
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

// The same attentions without a denominator, whose weights are the scores; null where no layer has
// one.
std::shared_ptr<TransNormer> model_of_scores(const Subject& subject) {
  ModelConfig model = subject.config.model;
  model.variant = ModelVariant::custom;
  bool changed = false;
  for (AttentionConfig* attention : {&model.early, &model.late}) {
    if (flag_of(*attention, "denominator").value_or(false)) {
      *attention = with_flag(*attention, "denominator", false);
      changed = true;
    }
  }
  return changed ? subject.rebuild(model) : nullptr;
}

class LayerMeasurement {
 public:
  LayerMeasurement(std::int64_t layer, const ModelConfig& model) : norm_eps_(model.norm_eps) {
    result_.layer = layer;
    result_.weighting = weighting_of(model, layer);
    switch (result_.weighting) {
      case Weighting::softmax:
        result_.quantity = "dp/ds";
        result_.bound = 0.25;
        break;
      case Weighting::linear:
        result_.quantity = "dp/ds";
        break;
      case Weighting::unnormalised:
        result_.quantity = "dL/ds";
        break;
      case Weighting::other:
        result_.quantity = "dL/dw";
        break;
    }
  }

  // scores: that of linear attention without its denominator, else null.
  void add(const Subject& subject, TransNormer* scores, const LayerRecord& record,
           const Selection& selection) {
    const at::NoGradGuard no_gradients;
    const at::Tensor all = weights_of(*subject.model, result_.layer, record);
    const std::vector<std::int64_t> heads = selection.heads_of(result_.layer, all.size(0));
    const at::Tensor weights = heads_chosen(all, 0, heads);
    if (result_.weighting == Weighting::softmax) {
      raise(result_.largest, largest_softmax_gradient(weights));
    } else if (result_.weighting == Weighting::linear && scores != nullptr) {
      add_linear(weights, heads_chosen(weights_of(*scores, result_.layer, record), 0, heads));
    } else {
      for (const AttentionRecord& attention : record.attentions) {
        add_loss_gradients(attention, weights, heads, all.size(0));
      }
    }
  }

  LayerGradients result() {
    if (result_.weighting == Weighting::linear) {
      result_.median_bound = median(bounds_);
    }
    return result_;
  }

 private:
  void add_linear(const at::Tensor& weights, const at::Tensor& scores) {
    for (std::int64_t head = 0; head < weights.size(0); ++head) {
      LinearGradients found = linear_gradients(shares(weights[head]), scores[head]);
      raise(result_.largest, found.largest);
      raise(result_.bound, found.bound);
      bounds_.insert(bounds_.end(), found.bounds.begin(), found.bounds.end());
    }
  }

  // Over the pairs that have a weight. all_heads: of the layer; parts of a mixture that have others
  // are left out.
  void add_loss_gradients(const AttentionRecord& attention, const at::Tensor& weights,
                          const std::vector<std::int64_t>& heads, std::int64_t all_heads) {
    const at::Tensor values = attention.inside.v.squeeze(0);  // [time, heads, value_dim]
    if (values.size(1) != all_heads || !attention.inside.merged.grad().defined()) {
      return;
    }
    const at::Tensor gradient = attention.inside.merged.grad().squeeze(0).view_as(values);
    for (std::size_t i = 0; i < heads.size(); ++i) {
      const at::Tensor all =
          score_gradients(gradient.select(1, heads[i]), values.select(1, heads[i]));
      const at::Tensor seen = weights[static_cast<std::int64_t>(i)].ne(0);
      raise(result_.largest, all.mul(seen).abs().max().item<double>());
    }
    if (result_.weighting != Weighting::unnormalised || !attention.normed.defined()) {
      return;
    }
    const at::Tensor output_gradient = attention.normed.grad().squeeze(0);
    raise(result_.c1, output_gradient.norm(2, {-1}, false).max().item<double>());
    raise(result_.c2, values.flatten(1).norm(2, {-1}, false).max().item<double>());
    result_.bound = norm_bound(result_.c1, result_.c2,
                               static_cast<double>(output_gradient.size(-1)), norm_eps_);
  }

  LayerGradients result_;
  double norm_eps_;
  std::vector<float> bounds_;
};

}  // namespace

double largest_softmax_gradient(const at::Tensor& p) {
  return p.mul(1 - p).max().item<double>();
}

LinearGradients linear_gradients(const at::Tensor& p, const at::Tensor& scores) {
  const at::Tensor size = scores.to(at::kDouble).abs();
  const at::Tensor seen = size.gt(0);
  if (!seen.any().item<bool>()) {
    return {.bound = kNone, .largest = 0};
  }
  const at::Tensor s = size.masked_select(seen);
  const at::Tensor here = p.to(at::kDouble).masked_select(seen);
  const at::Tensor bounds = 0.25 / s;
  const std::int64_t step = (s.numel() + kPairsKept - 1) / kPairsKept;
  const at::Tensor kept =
      bounds.slice(0, 0, bounds.numel(), step).to(at::kFloat).cpu().contiguous();
  const auto* first = kept.const_data_ptr<float>();
  return {.bound = bounds.max().item<double>(),
          .largest = here.mul(1 - here).div(s).max().item<double>(),
          .bounds = std::vector<float>(first, first + kept.numel())};
}

at::Tensor score_gradients(const at::Tensor& gradient, const at::Tensor& values) {
  return at::mm(gradient, values.t());
}

double norm_bound(double c1, double c2, double width, double eps) {
  return 3 * c1 * c2 * width / (2 * std::sqrt(eps));
}

std::vector<LayerGradients> measure_gradients(const Subject& subject, const Selection& selection) {
  const std::shared_ptr<TransNormer> scores = model_of_scores(subject);
  std::vector<LayerMeasurement> layers;
  for (const std::int64_t layer : selection.layers) {
    layers.emplace_back(layer, subject.config.model);
  }
  for (const Window& window : subject.windows) {
    const std::vector<LayerRecord> records = record_pass(*subject.model, window, true);
    for (std::size_t i = 0; i < layers.size(); ++i) {
      layers[i].add(subject, scores.get(), records[static_cast<std::size_t>(selection.layers[i])],
                    selection);
    }
  }
  std::vector<LayerGradients> results;
  for (LayerMeasurement& layer : layers) {
    results.push_back(layer.result());
  }
  return results;
}

}  // namespace transnormer
