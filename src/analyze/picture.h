// Pictures of an analysis as PNG files: curves, and matrices as heat maps. Text is ASCII.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace transnormer {

struct Curve {
  std::string name;
  std::vector<double> x;
  std::vector<double> y;  // what is not finite, or not positive on a logarithmic axis, is left out
  bool emphasised = false;
};

struct LinePlot {
  std::string title;
  std::string x_label;
  std::string y_label;
  bool log_x = false;    // in powers of two
  bool whole_x = false;  // ticks at whole numbers only
  bool log_y = false;    // in powers of ten
  std::vector<Curve> curves;
};

// The axes hold all points, and 0 on a y axis that is not logarithmic.
[[nodiscard]] std::string draw(const LinePlot& plot);

struct HeatMap {
  std::string title;
  std::string x_label;
  std::string y_label;
  std::int64_t rows = 0;  // the first one above
  std::int64_t columns = 0;
  std::vector<float> values{};  // row by row, from 0
  std::int64_t span = 0;        // what the axes count up to: rows may stand for several each
  float darkest = 1;            // of what value on a cell is as dark as can be
};

[[nodiscard]] std::string draw(const HeatMap& map);

// Of a picture, in pixels.
struct PictureSize {
  int width = 0;
  int height = 0;
};
inline constexpr PictureSize kLinePlotSize{960, 600};
[[nodiscard]] PictureSize size_of(const HeatMap& map);

}  // namespace transnormer
