#include "analyze/picture.h"

#include <gd.h>
#include <gdfontg.h>
#include <gdfontl.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <stdexcept>
#include <utility>

#include "analyze/png.h"
#include "util/units.h"

namespace transnormer {
namespace {

constexpr int kWhite = 0xFFFFFF;
constexpr int kBlack = 0x000000;
constexpr int kGrid = 0xE0E0E0;
constexpr int kLetter = 8;  // width of the font's letters
constexpr int kLine = 18;

using Image = std::unique_ptr<gdImage, void (*)(gdImagePtr)>;

Image blank(int width, int height) {
  Image image(gdImageCreateTrueColor(width, height), gdImageDestroy);
  if (image == nullptr) {
    throw std::runtime_error("a picture could not be made");
  }
  gdImageFilledRectangle(image.get(), 0, 0, width - 1, height - 1, kWhite);
  return image;
}

enum class Align { left, centre, right };

void write(const Image& image, int x, int y, const std::string& text, Align align,
           gdFontPtr font = gdFontGetLarge()) {
  const int width = static_cast<int>(text.size()) * font->w;
  const int shift = align == Align::left ? 0 : align == Align::centre ? width / 2 : width;
  std::string bytes = text;  // the library takes what it does not change as not const
  gdImageString(image.get(), font, x - shift, y - font->h / 2,
                reinterpret_cast<unsigned char*>(bytes.data()), kBlack);
}

// From below upwards, centred.
void write_upwards(const Image& image, int x, int y, const std::string& text) {
  std::string bytes = text;
  const int length = static_cast<int>(text.size()) * kLetter;
  gdImageStringUp(image.get(), gdFontGetLarge(), x, y + length / 2,
                  reinterpret_cast<unsigned char*>(bytes.data()), kBlack);
}

// "0.25", "1500", "1e-05".
std::string label(double value) {
  constexpr double kLong = 1e6;
  return value == std::round(value) && std::abs(value) < kLong ? std::to_string(std::llround(value))
                                                               : format_significant(value);
}

// A fully saturated, not too bright colour; hue from 0 to 1 is blue to red by way of green.
int colour_of(double hue) {
  const double angle = (1 - hue) * 240 / 60;
  const auto part = [&](double centre) {
    const double distance = std::min(std::abs(angle - centre), 6 - std::abs(angle - centre));
    return static_cast<int>(std::lround(205 * std::clamp(2 - distance, 0.0, 1.0)));
  };
  const int red = part(0);
  const int green = part(2) * 3 / 4;  // green looks brighter than it is
  const int blue = part(4);
  return red * 0x10000 + green * 0x100 + blue;
}

// One axis: from values to [0, 1], and where its ticks are.
class Axis {
 public:
  enum class Kind { linear, powers_of_two, powers_of_ten };

  Axis(Kind kind, double low, double high) : kind_(kind), low_(map(low)), high_(map(high)) {
    if (!(low_ <= high_)) {  // no point at all
      low_ = 0;
      high_ = 1;
    }
    if (kind == Kind::powers_of_ten) {
      low_ = std::floor(low_);
      high_ = std::ceil(high_);
    }
    if (low_ == high_) {
      high_ += 1;
    }
  }

  [[nodiscard]] bool holds(double value) const {
    return std::isfinite(value) && (kind_ == Kind::linear || value > 0);
  }
  [[nodiscard]] double place(double value) const { return (map(value) - low_) / (high_ - low_); }

  // The same up to a tick above its highest value.
  [[nodiscard]] Axis rounded_up() const {
    Axis rounded = *this;
    rounded.high_ = std::ceil(high_ / step() - 1e-9) * step();
    return rounded;
  }

  // With ticks at whole numbers only.
  [[nodiscard]] Axis of_whole_numbers() const {
    Axis whole = *this;
    whole.least_step_ = 1;
    return whole;
  }

  [[nodiscard]] std::vector<double> ticks() const {
    std::vector<double> values;
    for (double i = std::ceil(low_ / step() - 1e-9); i * step() <= high_ + 1e-9 * step(); ++i) {
      values.push_back(unmap(i * step()));
    }
    return values;
  }

 private:
  [[nodiscard]] double step() const {
    return kind_ == Kind::linear ? std::max(least_step_, nice((high_ - low_) / 6))
                                 : std::max(1.0, std::ceil((high_ - low_) / 10));
  }
  // The next of 1, 2, 5 times a power of ten.
  static double nice(double step) {
    const double power = std::pow(10, std::floor(std::log10(step)));
    for (const double factor : {1.0, 2.0, 5.0}) {
      if (factor * power >= step) {
        return factor * power;
      }
    }
    return 10 * power;
  }
  [[nodiscard]] double map(double value) const {
    return kind_ == Kind::linear          ? value
           : kind_ == Kind::powers_of_two ? std::log2(value)
                                          : std::log10(value);
  }
  [[nodiscard]] double unmap(double mapped) const {
    return kind_ == Kind::linear          ? mapped
           : kind_ == Kind::powers_of_two ? std::exp2(mapped)
                                          : std::pow(10, mapped);
  }

  Kind kind_;
  double low_;
  double high_;
  double least_step_ = 0;
};

Axis axis_over(const LinePlot& plot, std::vector<double> Curve::*member, Axis::Kind kind,
               bool with_zero) {
  double low = with_zero ? 0 : std::numeric_limits<double>::infinity();
  double high = with_zero ? 0 : -std::numeric_limits<double>::infinity();
  for (const Curve& curve : plot.curves) {
    for (const double value : curve.*member) {
      if (std::isfinite(value) && (kind == Axis::Kind::linear || value > 0)) {
        low = std::min(low, value);
        high = std::max(high, value);
      }
    }
  }
  return {kind, low, high};
}

// The rectangle of the axes, in pixels.
struct Frame {
  int left;
  int top;
  int right;
  int bottom;

  [[nodiscard]] int x(double place) const {
    return left + static_cast<int>(std::lround(place * (right - left)));
  }
  [[nodiscard]] int y(double place) const {
    return bottom - static_cast<int>(std::lround(place * (bottom - top)));
  }
  [[nodiscard]] Frame times(int factor) const {
    return {left * factor, top * factor, right * factor, bottom * factor};
  }
};

void draw_curve(const Image& image, const Curve& curve, const Frame& frame, const Axis& x_axis,
                const Axis& y_axis, int colour) {
  gdImageSetThickness(image.get(), curve.emphasised ? 6 : 3);
  bool has_last = false;
  int last_x = 0;
  int last_y = 0;
  for (std::size_t i = 0; i < curve.x.size(); ++i) {
    if (!x_axis.holds(curve.x[i]) || !y_axis.holds(curve.y[i])) {
      has_last = false;
      continue;
    }
    const int x = frame.x(x_axis.place(curve.x[i]));
    const int y = frame.y(y_axis.place(curve.y[i]));
    gdImageFilledEllipse(image.get(), x, y, 11, 11, colour);
    if (has_last) {
      gdImageLine(image.get(), last_x, last_y, x, y, colour);
    }
    has_last = true;
    last_x = x;
    last_y = y;
  }
  gdImageSetThickness(image.get(), 1);
}

std::vector<int> colours_of(const LinePlot& plot) {
  const auto plain = std::count_if(plot.curves.begin(), plot.curves.end(),
                                   [](const Curve& curve) { return !curve.emphasised; });
  std::vector<int> colours;
  double index = 0;
  for (const Curve& curve : plot.curves) {
    colours.push_back(curve.emphasised
                          ? kBlack
                          : colour_of(plain > 1 ? index++ / static_cast<double>(plain - 1) : 0));
  }
  return colours;
}

void draw_legend(const Image& image, const LinePlot& plot, const std::vector<int>& colours,
                 const Frame& frame) {
  const int left = frame.right + 20;
  const auto room = static_cast<std::size_t>((frame.bottom - frame.top) / kLine);
  for (std::size_t i = 0; i < plot.curves.size(); ++i) {
    const int y = frame.top + kLine / 2 + static_cast<int>(i) * kLine;
    if (i + 1 == room && plot.curves.size() > room) {
      write(image, left, y, "and " + std::to_string(plot.curves.size() - i) + " more", Align::left);
      return;
    }
    gdImageFilledRectangle(image.get(), left, y - (plot.curves[i].emphasised ? 2 : 1), left + 20,
                           y + 1, colours[i]);
    write(image, left + 28, y, plot.curves[i].name, Align::left);
  }
}

}  // namespace

std::string draw(const LinePlot& plot) {
  // Lines are drawn twice as large and then shrunk, which makes them smooth; letters are not.
  constexpr int kFiner = 2;
  const auto [width, height] = kLinePlotSize;
  std::size_t longest = 0;
  for (const Curve& curve : plot.curves) {
    longest = std::max(longest, curve.name.size());
  }
  const int legend = std::min(width / 2, 60 + static_cast<int>(longest) * kLetter);
  const Frame frame{90, 50, width - legend, height - 70};
  const Axis over_x = axis_over(plot, &Curve::x,
                                plot.log_x ? Axis::Kind::powers_of_two : Axis::Kind::linear, false);
  const Axis x_axis = plot.whole_x ? over_x.of_whole_numbers() : over_x;
  const Axis y_axis =
      axis_over(plot, &Curve::y, plot.log_y ? Axis::Kind::powers_of_ten : Axis::Kind::linear,
                !plot.log_y)
          .rounded_up();
  const std::vector<int> colours = colours_of(plot);

  const Image fine = blank(width * kFiner, height * kFiner);
  const Frame large = frame.times(kFiner);
  for (const double tick : x_axis.ticks()) {
    const int x = large.x(x_axis.place(tick));
    gdImageFilledRectangle(fine.get(), x, large.top, x + 1, large.bottom, kGrid);
  }
  for (const double tick : y_axis.ticks()) {
    const int y = large.y(y_axis.place(tick));
    gdImageFilledRectangle(fine.get(), large.left, y, large.right, y + 1, kGrid);
  }
  gdImageSetThickness(fine.get(), kFiner);
  gdImageRectangle(fine.get(), large.left, large.top, large.right, large.bottom, kBlack);
  for (std::size_t i = 0; i < plot.curves.size(); ++i) {
    draw_curve(fine, plot.curves[i], large, x_axis, y_axis, colours[i]);
  }

  const Image image = blank(width, height);
  gdImageCopyResampled(image.get(), fine.get(), 0, 0, 0, 0, width, height, width * kFiner,
                       height * kFiner);
  for (const double tick : x_axis.ticks()) {
    write(image, frame.x(x_axis.place(tick)), frame.bottom + 14, label(tick), Align::centre);
  }
  for (const double tick : y_axis.ticks()) {
    write(image, frame.left - 8, frame.y(y_axis.place(tick)), label(tick), Align::right);
  }
  write(image, (frame.left + frame.right) / 2, frame.bottom + 40, plot.x_label, Align::centre);
  write_upwards(image, 8, (frame.top + frame.bottom) / 2, plot.y_label);
  write(image, frame.left, 26, plot.title, Align::left, gdFontGetGiant());
  draw_legend(image, plot, colours, frame);
  return to_png(image.get());
}

namespace {

constexpr int kMapLeft = 90;
constexpr int kMapTop = 50;
constexpr int kMapRight = 130;
constexpr int kMapBottom = 70;
constexpr int kLeastMapSide = 480;

// Pixels of a cell's side.
int cell_of(const HeatMap& map) {
  return std::max(1, kLeastMapSide / static_cast<int>(std::max(map.rows, map.columns)));
}

// White to dark blue.
int shade(double share) {
  const double dark = std::clamp(share, 0.0, 1.0);
  const auto mixed = [dark](int end) {
    return static_cast<int>(std::lround(255 + dark * (end - 255)));
  };
  return mixed(8) * 0x10000 + mixed(29) * 0x100 + mixed(88);
}

}  // namespace

PictureSize size_of(const HeatMap& map) {
  const int cell = cell_of(map);
  // Room for the title, however small the matrix.
  return {kMapLeft + std::max(kLeastMapSide, static_cast<int>(map.columns) * cell) + kMapRight,
          kMapTop + static_cast<int>(map.rows) * cell + kMapBottom};
}

std::string draw(const HeatMap& map) {
  const auto [width, height] = size_of(map);
  const int cell = cell_of(map);
  const Frame frame{kMapLeft, kMapTop, kMapLeft + static_cast<int>(map.columns) * cell,
                    kMapTop + static_cast<int>(map.rows) * cell};
  const Image image = blank(width, height);
  for (std::int64_t row = 0; row < map.rows; ++row) {
    for (std::int64_t column = 0; column < map.columns; ++column) {
      const float value = map.values[static_cast<std::size_t>(row * map.columns + column)];
      const int x = frame.left + static_cast<int>(column) * cell;
      const int y = frame.top + static_cast<int>(row) * cell;
      gdImageFilledRectangle(image.get(), x, y, x + cell - 1, y + cell - 1,
                             shade(map.darkest > 0 ? value / map.darkest : 0));
    }
  }
  gdImageRectangle(image.get(), frame.left - 1, frame.top - 1, frame.right, frame.bottom, kBlack);

  const Axis axis(Axis::Kind::linear, 0, static_cast<double>(map.span));
  for (const double tick : axis.ticks()) {
    const int x = frame.x(axis.place(tick));
    const int y = frame.top + (frame.bottom - frame.y(axis.place(tick)));
    gdImageLine(image.get(), x, frame.bottom, x, frame.bottom + 4, kBlack);
    gdImageLine(image.get(), frame.left - 5, y, frame.left - 1, y, kBlack);
    write(image, x, frame.bottom + 16, label(tick), Align::centre);
    write(image, frame.left - 8, y, label(tick), Align::right);
  }
  write(image, (frame.left + frame.right) / 2, frame.bottom + 42, map.x_label, Align::centre);
  write_upwards(image, 8, (frame.top + frame.bottom) / 2, map.y_label);
  write(image, frame.left, 26, map.title, Align::left, gdFontGetGiant());

  const int bar = frame.right + 24;
  for (int y = frame.top; y < frame.bottom; ++y) {
    gdImageLine(image.get(), bar, y, bar + 18, y,
                shade(static_cast<double>(frame.bottom - 1 - y) /
                      std::max(1, frame.bottom - 1 - frame.top)));
  }
  gdImageRectangle(image.get(), bar, frame.top - 1, bar + 18, frame.bottom, kBlack);
  write(image, bar + 24, frame.top + 6, ">= " + label(map.darkest), Align::left);
  write(image, bar + 24, frame.bottom - 6, "0", Align::left);
  return to_png(image.get());
}

}  // namespace transnormer
