#include "analyze/measurement.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <map>
#include <utility>

#include "analyze/dilution.h"
#include "analyze/gradients.h"
#include "analyze/iterations.h"
#include "analyze/maps.h"
#include "analyze/picture.h"
#include "analyze/rank.h"
#include "analyze/scale.h"
#include "util/units.h"

namespace transnormer {
namespace {

using Json = nlohmann::ordered_json;

std::string name_of_map(std::int64_t layer, std::int64_t head) {
  return "map_layer" + std::to_string(layer) + "_head" + std::to_string(head);
}

std::string layer_and_attention(const Subject& subject, std::int64_t layer) {
  return "layer " + std::to_string(layer) + " " + attention_of(subject.config.model, layer).name();
}

const char* to_string(Weighting weighting) {
  switch (weighting) {
    case Weighting::softmax:
      return "softmax";
    case Weighting::linear:
      return "linear";
    case Weighting::unnormalised:
      return "unnormalised";
    case Weighting::other:
      break;
  }
  return "other";
}

// What every answer begins with. `windows`: as many of the subject's as are looked at.
Json head_of(Measurement what, const Subject& subject, std::size_t windows) {
  return {{"what", transnormer::to_string(what)},
          {"weights", subject.trained ? "trained" : "initial"},
          {"text", subject.text},
          {"samples", windows},
          {"length", subject.length},
          {"causal", subject.config.model.causal}};
}

Json numbers(const std::vector<double>& values) {
  Json list = Json::array();
  for (const double value : values) {
    list.push_back(number(value));
  }
  return list;
}

Answer measure_dilution(const Subject& subject, const Selection& selection, OutputDirectory& out) {
  std::map<std::int64_t, DilutionCurve> curves;
  for (const Window& window : subject.windows) {
    for_each_weights(*subject.model, window.inputs, selection,
                     [&](std::int64_t layer, const at::Tensor& weights) {
                       for (const std::int64_t head : selection.heads_of(layer, weights.size(0))) {
                         curves[layer].add(weights.narrow(0, head, 1));
                       }
                     });
  }
  DilutionCurve mean;
  const std::vector<double> window_shares = DilutionCurve::window_shares();
  Answer answer{.json = head_of(Measurement::dilution, subject, subject.windows.size()),
                .table = Json::array(),
                .note =
                    "Share of the attention within a window of r times the length around each "
                    "token, and the area under it over r."};
  answer.json["shares"] = window_shares;
  answer.json["layers"] = Json::array();
  LinePlot plot{.title = "Locally accumulated attention",
                .x_label = "window, as a share r of the length",
                .y_label = "share of the attention inside",
                .curves = {}};
  Json csv = Json::array();
  for (const double share : window_shares) {
    csv.push_back({{"share", share}});
  }
  const auto add = [&](const std::string& column, const std::string& legend,
                       const DilutionCurve& curve, bool emphasised) {
    const std::vector<double> values = curve.values();
    plot.curves.push_back(
        {.name = legend, .x = window_shares, .y = values, .emphasised = emphasised});
    for (std::size_t i = 0; i < values.size(); ++i) {
      csv[i][column] = number(values[i]);
    }
    const auto at_share = [&](double share) {
      return number(values[static_cast<std::size_t>(
          std::lround(share * static_cast<double>(DilutionCurve::kPoints - 1)))]);
    };
    answer.table.push_back({{"curve", legend},
                            {"r=0", at_share(0)},
                            {"r=0.1", at_share(0.1)},
                            {"r=0.25", at_share(0.25)},
                            {"r=0.5", at_share(0.5)},
                            {"r=1", at_share(1)},
                            {"area", number(curve.area())}});
    return Json{{"curve", numbers(values)}, {"area", number(curve.area())}};
  };
  for (const auto& [layer, curve] : curves) {
    Json row{{"layer", layer}, {"attention", attention_of(subject.config.model, layer).name()}};
    row.update(
        add("layer_" + std::to_string(layer), layer_and_attention(subject, layer), curve, false));
    answer.json["layers"].push_back(row);
    mean.add(curve);
  }
  answer.json["mean"] = add("mean", "mean", mean, true);
  out.write("dilution.csv", to_csv(csv));
  if (out.is_somewhere()) {
    out.write("dilution.png", draw(plot));
  }
  return answer;
}

Answer measure_maps(const Subject& subject, const Selection& selection, OutputDirectory& out) {
  Answer answer{.json = head_of(Measurement::maps, subject, 1),
                .table = Json::array(),
                .note =
                    "Entropy (nats) and distance of what a token attends to, mean over the "
                    "tokens of the first window; --out DIR keeps the matrices."};
  answer.json["maps"] = Json::array();
  for_each_map(subject, selection, [&](const AttentionMap& map) {
    Json row{{"layer", map.layer},
             {"head", map.head},
             {"attention", map.attention},
             {"entropy", number(map.entropy)},
             {"mean_distance", number(map.mean_distance)}};
    answer.table.push_back(row);
    if (out.is_somewhere()) {
      const std::string name = name_of_map(map.layer, map.head);
      out.write(name + ".csv", to_csv(map));
      out.write(name + ".png", draw(heat_map_of(map)));
    }
    row["tokens_a_cell"] = map.step;
    answer.json["maps"].push_back(row);
  });
  return answer;
}

LinePlot plot_of(const std::vector<LayerGradients>& layers) {
  constexpr double kNone = std::numeric_limits<double>::quiet_NaN();
  const auto curve = [&](const std::string& name, bool of_loss, double LayerGradients::*member) {
    Curve made{.name = name, .x = {}, .y = {}};
    for (const LayerGradients& layer : layers) {
      made.x.push_back(static_cast<double>(layer.layer));
      made.y.push_back((layer.quantity == "dp/ds") == of_loss ? kNone : layer.*member);
    }
    return made;
  };
  LinePlot plot{.title = "Gradients of attention weights, and their bounds",
                .x_label = "layer",
                .y_label = "largest absolute value",
                .whole_x = true,
                .log_y = true,
                .curves = {curve("dp/ds, bound", false, &LayerGradients::bound),
                           curve("dp/ds, occurs", false, &LayerGradients::largest),
                           curve("dL/ds or dL/dw, bound", true, &LayerGradients::bound),
                           curve("dL/ds or dL/dw, occurs", true, &LayerGradients::largest)}};
  std::erase_if(plot.curves, [](const Curve& one) {
    return std::none_of(one.y.begin(), one.y.end(), [](double y) { return y > 0; });
  });
  return plot;
}

Answer answer_gradients(const Subject& subject, const Selection& selection, OutputDirectory& out) {
  const std::vector<LayerGradients> layers = measure_gradients(subject, selection);
  Answer answer{.json = head_of(Measurement::gradients, subject, subject.windows.size()),
                .table = Json::array(),
                .note =
                    "Gradients of weights with respect to scores, or of the mean loss of the "
                    "next token: the theory's bound, and the largest that occurs."};
  answer.json["loss"] = "mean over the next tokens of a sample, nats";
  answer.json["layers"] = Json::array();
  for (const LayerGradients& layer : layers) {
    const Json row{{"layer", layer.layer},
                   {"attention", attention_of(subject.config.model, layer.layer).name()},
                   {"form", to_string(layer.weighting)},
                   {"quantity", layer.quantity},
                   {"bound", number(layer.bound)},
                   {"median_bound", number(layer.median_bound)},
                   {"largest", number(layer.largest)},
                   {"c1", number(layer.c1)},
                   {"c2", number(layer.c2)}};
    answer.json["layers"].push_back(row);
    answer.table.push_back(row);
  }
  Json iterations;
  if (!subject.metrics.empty()) {
    if (const auto deviations = relative_deviations(subject.metrics)) {
      iterations = Json::object();
      for (const auto& [group, value] : *deviations) {
        iterations[group] = number(value);
      }
      answer.note +=
          "\nRelative standard deviation of the gradient over the run's iterations: " +
          (deviations->contains("all") ? format_significant(deviations->at("all")) : "-") + ".";
    }
  }
  answer.json["iterations"] = iterations;
  out.write("gradients.csv", to_csv(answer.table));
  if (out.is_somewhere()) {
    out.write("gradients.png", draw(plot_of(layers)));
  }
  return answer;
}

Answer answer_scale(const Subject& subject, const Selection& selection, OutputDirectory& out) {
  Answer answer{.json = head_of(Measurement::scale, subject, subject.windows.size()),
                .table = Json::array(),
                .note =
                    "Root mean square and largest absolute value of the attention's output "
                    "before any norm, and of the gradient with respect to q, k and v."};
  for (const ScaleRow& row : measure_scale(subject, selection)) {
    answer.table.push_back({{"layer", row.layer},
                            {"attention", row.attention},
                            {"denominator", row.denominator ? Json(*row.denominator) : Json()},
                            {"norm", row.norm},
                            {"as_configured", row.as_configured},
                            {"output_rms", number(row.output_rms)},
                            {"output_max", number(row.output_max)},
                            {"gradient_rms", number(row.gradient_rms)},
                            {"gradient_max", number(row.gradient_max)}});
  }
  answer.json["rows"] = answer.table;
  out.write("scale.csv", to_csv(answer.table));
  return answer;
}

// Means over heads.
class MeanRank {
 public:
  void add(const RankRow& row) {
    rank_ += static_cast<double>(row.rank);
    effective_ += row.effective_rank;
    ++count_;
  }
  [[nodiscard]] Json rank() const { return count_ > 0 ? number(rank_ / count_) : Json(); }
  [[nodiscard]] Json effective() const { return count_ > 0 ? number(effective_ / count_) : Json(); }
  [[nodiscard]] double effective_rank() const { return effective_ / count_; }

 private:
  double rank_ = 0;
  double effective_ = 0;
  double count_ = 0;
};

struct RankKey {
  std::int64_t layer;
  std::int64_t key_dim;  // 0: of the weights themselves
  std::int64_t window;
  auto operator<=>(const RankKey&) const = default;
};

// By layer, key width and window; [0] without a mask, [1] with it.
using MeanRanks = std::map<RankKey, std::array<MeanRank, 2>>;

// Of one layer, against key widths at the longest window, or against windows at the widest key.
Curve rank_curve(const MeanRanks& ranks, std::int64_t layer, bool masked, bool by_width,
                 std::int64_t fixed, const std::string& name) {
  Curve curve{.name = name, .x = {}, .y = {}};
  for (const auto& [key, means] : ranks) {
    if (key.layer == layer && key.key_dim > 0 && (by_width ? key.window : key.key_dim) == fixed) {
      const double y = means[masked ? 1 : 0].effective_rank();
      if (std::isfinite(y)) {
        curve.x.push_back(static_cast<double>(by_width ? key.key_dim : key.window));
        curve.y.push_back(y);
      }
    }
  }
  return curve;
}

void draw_ranks(const MeanRanks& ranks, const Subject& subject, const Selection& selection,
                OutputDirectory& out) {
  const std::int64_t n = subject.windows.front().inputs.size(1);
  LinePlot by_width{.title = "Effective rank of " + std::to_string(n) + " tokens' attention",
                    .x_label = "key features that make the scores",
                    .y_label = "effective rank, mean over heads",
                    .log_x = true,
                    .curves = {}};
  LinePlot by_window = by_width;
  by_window.x_label = "tokens that one sees at most";
  for (const std::int64_t layer : selection.layers) {
    std::int64_t widest = 0;
    for (const auto& [key, means] : ranks) {
      widest = key.layer == layer ? std::max(widest, key.key_dim) : widest;
    }
    const std::string name = layer_and_attention(subject, layer);
    by_width.curves.push_back(rank_curve(ranks, layer, false, true, n, name + ", no mask"));
    by_width.curves.push_back(rank_curve(ranks, layer, true, true, n, name + ", causal"));
    by_window.curves.push_back(rank_curve(ranks, layer, true, false, widest, name + ", causal"));
  }
  out.write("rank.png", draw(by_width));
  out.write("rank_window.png", draw(by_window));
}

Answer answer_rank(const Subject& subject, const Selection& selection, OutputDirectory& out) {
  Answer answer{.json = head_of(Measurement::rank, subject, 1),
                .table = Json::array(),
                .note =
                    "Rank and effective rank of attention matrices of the first window, mean "
                    "over heads, by the key features that make the scores and the tokens that "
                    "one sees."};
  Json rows = Json::array();
  MeanRanks means;
  for (const RankRow& row : measure_rank(subject, selection)) {
    rows.push_back({{"layer", row.layer},
                    {"head", row.head},
                    {"key_dim", row.key_dim ? Json(*row.key_dim) : Json()},
                    {"window", row.window},
                    {"masked", row.masked},
                    {"rank", row.rank},
                    {"effective_rank", number(row.effective_rank)}});
    means[{row.layer, row.key_dim.value_or(0), row.window}][row.masked ? 1 : 0].add(row);
  }
  // Against widths for the longest window, against windows for the widest keys: all are in the
  // rows.
  std::map<std::int64_t, std::int64_t> widest;
  for (const auto& [key, mean] : means) {
    widest[key.layer] = std::max(widest[key.layer], key.key_dim);
  }
  for (const auto& [key, mean] : means) {
    if (key.window != subject.windows.front().inputs.size(1) && key.key_dim != widest[key.layer]) {
      continue;
    }
    answer.table.push_back({{"layer", key.layer},
                            {"attention", attention_of(subject.config.model, key.layer).name()},
                            {"key_dim", key.key_dim > 0 ? Json(key.key_dim) : Json()},
                            {"window", key.window},
                            {"rank", mean[0].rank()},
                            {"effective", mean[0].effective()},
                            {"causal rank", mean[1].rank()},
                            {"causal effective", mean[1].effective()}});
  }
  answer.json["rows"] = rows;
  out.write("rank.csv", to_csv(rows));
  if (out.is_somewhere()) {
    draw_ranks(means, subject, selection, out);
  }
  return answer;
}

Answer measured(Measurement what, const Subject& subject, const Selection& selection,
                OutputDirectory& out) {
  switch (what) {
    case Measurement::dilution:
      return measure_dilution(subject, selection, out);
    case Measurement::maps:
      return measure_maps(subject, selection, out);
    case Measurement::gradients:
      return answer_gradients(subject, selection, out);
    case Measurement::scale:
      return answer_scale(subject, selection, out);
    case Measurement::rank:
      break;
  }
  return answer_rank(subject, selection, out);
}

}  // namespace

const char* to_string(Measurement what) {
  switch (what) {
    case Measurement::dilution:
      return "dilution";
    case Measurement::maps:
      return "maps";
    case Measurement::gradients:
      return "gradients";
    case Measurement::scale:
      return "scale";
    case Measurement::rank:
      break;
  }
  return "rank";
}

std::vector<std::string> files_of(Measurement what, const ModelConfig& model,
                                  const Selection& selection) {
  switch (what) {
    case Measurement::dilution:
      return {"dilution.csv", "dilution.png"};
    case Measurement::gradients:
      return {"gradients.csv", "gradients.png"};
    case Measurement::scale:
      return {"scale.csv"};
    case Measurement::rank:
      return {"rank.csv", "rank.png", "rank_window.png"};
    case Measurement::maps:
      break;
  }
  std::vector<std::string> names;
  for (const std::int64_t layer : selection.layers) {
    for (std::int64_t head = 0; head < model.heads; ++head) {
      if (selection.heads.empty() ||
          std::binary_search(selection.heads.begin(), selection.heads.end(), head)) {
        names.push_back(name_of_map(layer, head) + ".csv");
        names.push_back(name_of_map(layer, head) + ".png");
      }
    }
  }
  return names;
}

Answer measure(Measurement what, const Subject& subject, const Selection& selection,
               OutputDirectory& out) {
  Answer answer = measured(what, subject, selection, out);
  answer.json["files"] = out.files();
  return answer;
}

}  // namespace transnormer
