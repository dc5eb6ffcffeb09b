#include "analyze/maps.h"

#include <ATen/ATen.h>

#include <array>
#include <cstdio>

namespace transnormer {

AttentionMap map_of(const at::Tensor& weights) {
  const at::Tensor p = shares(weights);
  const std::int64_t n = p.size(0);
  const std::int64_t step = (n + kMostCells - 1) / kMostCells;
  const at::Tensor cells = step == 1
                               ? p
                               : at::avg_pool2d(p.unsqueeze(0), {step, step}, {step, step}, {0, 0},
                                                /*ceil_mode=*/true, /*count_include_pad=*/false)
                                     .squeeze(0);
  const auto rows = p.sum(-1).gt(0).sum().item<double>();
  const at::Tensor token = at::arange(n, p.options());
  const at::Tensor distance = (token.unsqueeze(1) - token.unsqueeze(0)).abs();
  const at::Tensor logs = at::where(p > 0, p, at::ones_like(p)).log();
  return {.length = n,
          .step = step,
          .cells = cells.cpu().contiguous(),
          .entropy = rows > 0 ? -p.mul(logs).sum().item<double>() / rows : 0,
          .mean_distance = rows > 0 ? p.mul(distance).sum().item<double>() / rows : 0};
}

void for_each_map(const Subject& subject, const Selection& selection,
                  const std::function<void(const AttentionMap& map)>& each) {
  for_each_weights(*subject.model, subject.windows.front().inputs, selection,
                   [&](std::int64_t layer, const at::Tensor& weights) {
                     for (const std::int64_t head : selection.heads_of(layer, weights.size(0))) {
                       AttentionMap map = map_of(weights[head]);
                       map.layer = layer;
                       map.head = head;
                       map.attention = attention_of(subject.config.model, layer).name();
                       each(map);
                     }
                   });
}

HeatMap heat_map_of(const AttentionMap& map) {
  constexpr double kDarkest = 0.99;
  const at::Tensor values = map.cells.to(at::kFloat).contiguous();
  const at::Tensor some = std::get<0>(values.masked_select(values > 0).sort());
  const auto index = static_cast<std::int64_t>(kDarkest * static_cast<double>(some.numel()));
  const auto* first = values.const_data_ptr<float>();
  return {.title = "layer " + std::to_string(map.layer) + ", head " + std::to_string(map.head) +
                   ": " + map.attention,
          .x_label = "key (token)",
          .y_label = "query (token)",
          .rows = values.size(0),
          .columns = values.size(1),
          .values = std::vector<float>(first, first + values.numel()),
          .span = map.length,
          .darkest = some.numel() > 0 ? some[index].item<float>() : 1};
}

std::string to_csv(const AttentionMap& map) {
  const std::int64_t rows = map.cells.size(0);
  const auto* cell = map.cells.const_data_ptr<double>();
  std::string csv = "query";
  for (std::int64_t column = 0; column < rows; ++column) {
    csv += ',' + std::to_string(column * map.step);
  }
  csv += '\n';
  for (std::int64_t row = 0; row < rows; ++row) {
    csv += std::to_string(row * map.step);
    for (std::int64_t column = 0; column < rows; ++column) {
      std::array<char, 32> digits{};
      std::snprintf(digits.data(), digits.size(), ",%.6g", *cell++);
      csv += digits.data();
    }
    csv += '\n';
  }
  return csv;
}

}  // namespace transnormer
