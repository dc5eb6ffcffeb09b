#include "analyze/scale.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>

#include "analyze/recorder.h"
#include "analyze/settings.h"
#include "model/attention/registry.h"

namespace transnormer {
namespace {

// Of all numbers that were added.
class Magnitude {
 public:
  void add(const at::Tensor& tensor) {
    const at::Tensor numbers = tensor.to(at::kDouble);
    squares_ += numbers.square().sum().item<double>();
    count_ += static_cast<double>(numbers.numel());
    largest_ = std::max(largest_, numbers.abs().max().item<double>());
  }
  [[nodiscard]] double rms() const { return std::sqrt(squares_ / count_); }
  [[nodiscard]] double largest() const { return largest_; }

 private:
  double squares_ = 0;
  double count_ = 0;
  double largest_ = 0;
};

struct LayerScale {
  Magnitude output;
  Magnitude gradient;
  bool has_any = false;
};

// The attention in its other form, or as it is.
AttentionConfig other_form(const AttentionConfig& attention) {
  if (const auto denominator = flag_of(attention, "denominator")) {
    return with_flag(attention, "denominator", !*denominator);
  }
  const auto norm = choice_of(attention, "output_norm");
  const bool normalised =
      attention_kinds().at(attention.name()).weighting(attention) != Weighting::unnormalised;
  if (!norm || normalised) {
    return attention;
  }
  return with_choice(attention, "output_norm", *norm == "none" ? "srms" : "none");
}

std::vector<LayerScale> measure(TransNormer& model, const std::vector<Window>& windows) {
  std::vector<LayerScale> layers(model.blocks().size());
  for (const Window& window : windows) {
    const std::vector<LayerRecord> records = record_pass(model, window, true);
    for (std::size_t i = 0; i < layers.size(); ++i) {
      for (const AttentionRecord& attention : records[i].attentions) {
        layers[i].has_any = true;
        layers[i].output.add(attention.inside.merged.detach());
        for (const at::Tensor& tensor :
             {attention.inside.q, attention.inside.k, attention.inside.v}) {
          if (tensor.grad().defined()) {
            layers[i].gradient.add(tensor.grad());
          }
        }
      }
    }
  }
  return layers;
}

std::optional<bool> has_denominator(const ModelConfig& model, std::int64_t layer) {
  const Weighting weighting = weighting_of(model, layer);
  return weighting == Weighting::other ? std::nullopt
                                       : std::optional(weighting != Weighting::unnormalised);
}

}  // namespace

std::vector<ModelConfig> forms_of(const ModelConfig& model, const ModelSize& size) {
  ModelConfig other = model;
  other.variant = ModelVariant::custom;
  for (AttentionConfig ModelConfig::*const half : {&ModelConfig::early, &ModelConfig::late}) {
    const AttentionConfig before = other.*half;
    other.*half = other_form(before);
    if (!unfit_attentions(other, size).empty()) {
      other.*half = before;
    }
  }
  if (other.early == model.early && other.late == model.late) {
    return {model};
  }
  return {model, other};
}

std::vector<ScaleRow> measure_scale(const Subject& subject, const Selection& selection) {
  const std::vector<ModelConfig> forms = forms_of(subject.config.model, subject.model->size());
  std::vector<ScaleRow> rows;
  for (std::size_t form = 0; form < forms.size(); ++form) {
    const auto model = form == 0 ? subject.model : subject.rebuild(forms[form]);
    const std::vector<LayerScale> layers = measure(*model, subject.windows);
    for (const std::int64_t layer : selection.layers) {
      const AttentionConfig& attention = attention_of(forms[form], layer);
      const LayerScale& measured = layers[static_cast<std::size_t>(layer)];
      const bool repeats = form > 0 && attention == attention_of(forms[0], layer);
      if (!measured.has_any || repeats) {
        continue;
      }
      rows.push_back({.layer = layer,
                      .attention = attention.name(),
                      .denominator = has_denominator(forms[form], layer),
                      .norm = choice_of(attention, "output_norm").value_or("none"),
                      .as_configured = form == 0,
                      .output_rms = measured.output.rms(),
                      .output_max = measured.output.largest(),
                      .gradient_rms = measured.gradient.rms(),
                      .gradient_max = measured.gradient.largest()});
    }
  }
  std::stable_sort(rows.begin(), rows.end(),
                   [](const ScaleRow& a, const ScaleRow& b) { return a.layer < b.layer; });
  return rows;
}

}  // namespace transnormer
