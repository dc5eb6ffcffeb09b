#include "analyze/picture.h"

#include <gd.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <memory>
#include <set>
#include <string>

#include "analyze/output_directory.h"
#include "analyze/png.h"
#include "util/file.h"
#include "util/python.h"
#include "util/temporary_directory.h"

namespace transnormer {
namespace {

using Image = std::unique_ptr<gdImage, void (*)(gdImagePtr)>;

Image decoded(const std::string& png) {
  std::string bytes = png;
  Image image(gdImageCreateFromPngPtr(static_cast<int>(bytes.size()), bytes.data()),
              gdImageDestroy);
  EXPECT_NE(image, nullptr);
  return image;
}

int brightness(const Image& image, int x, int y) {
  const int pixel = gdImageGetPixel(image.get(), x, y);
  return gdImageRed(image.get(), pixel) + gdImageGreen(image.get(), pixel) +
         gdImageBlue(image.get(), pixel);
}

LinePlot two_curves() {
  return {.title = "Title",
          .x_label = "x",
          .y_label = "y",
          .curves = {{.name = "one", .x = {0, 1, 2}, .y = {0, 1, 4}},
                     {.name = "two", .x = {0, 1, 2}, .y = {4, 1, 0}, .emphasised = true}}};
}

std::set<int> colours_in(const Image& image, int left, int top, int right, int bottom) {
  std::set<int> colours;
  for (int y = top; y < bottom; ++y) {
    for (int x = left; x < right; ++x) {
      colours.insert(gdImageGetPixel(image.get(), x, y));
    }
  }
  return colours;
}

TEST(Picture, CurvesHaveTheSizeAndColoursInsideTheFrame) {
  const Image image = decoded(draw(two_curves()));
  EXPECT_EQ(gdImageSX(image.get()), kLinePlotSize.width);
  EXPECT_EQ(gdImageSY(image.get()), kLinePlotSize.height);
  EXPECT_EQ(brightness(image, 2, 2), 3 * 255);
  const std::set<int> colours = colours_in(image, 100, 60, 700, 500);
  EXPECT_TRUE(colours.contains(0x000000));  // the emphasised curve
  EXPECT_GT(colours.size(), 10);            // the other one, and what smooths it
}

TEST(Picture, ACurveThatIsDrawnIsAnotherPictureThanNone) {
  LinePlot without = two_curves();
  without.curves[0].y.assign(3, std::numeric_limits<double>::quiet_NaN());
  EXPECT_NE(draw(without), draw(two_curves()));
  without.curves.clear();
  (void)decoded(draw(without));
}

TEST(Picture, LogarithmicAxesLeaveOutWhatTheyCannotShow) {
  LinePlot plot = two_curves();
  plot.log_x = plot.log_y = true;
  (void)decoded(draw(plot));
  for (Curve& curve : plot.curves) {
    curve.x.erase(curve.x.begin());
    curve.y.erase(curve.y.begin());
  }
  plot.curves[1].y[1] = 1e-12;
  (void)decoded(draw(plot));
}

TEST(Picture, AHeatMapIsWhiteAtZeroAndDarkFromTheDarkestOn) {
  const HeatMap map{.title = "layer 0, head 0: diag",
                    .x_label = "key",
                    .y_label = "query",
                    .rows = 2,
                    .columns = 2,
                    .values = {0, 0.5, 9, 1},
                    .span = 2,
                    .darkest = 1};
  const Image image = decoded(draw(map));
  const auto [width, height] = size_of(map);
  EXPECT_EQ(gdImageSX(image.get()), width);
  EXPECT_EQ(gdImageSY(image.get()), height);
  // The cells are 240 pixels wide, from (90, 50) on.
  EXPECT_EQ(brightness(image, 90 + 100, 50 + 100), 3 * 255);
  const int half = brightness(image, 90 + 340, 50 + 100);
  const int dark = brightness(image, 90 + 100, 50 + 340);
  EXPECT_LT(half, 3 * 255);
  EXPECT_LT(dark, half);
  EXPECT_EQ(dark, brightness(image, 90 + 340, 50 + 340));
}

TEST(Picture, LargeMatricesHaveAPixelACell) {
  const HeatMap map{.title = "t",
                    .x_label = "key",
                    .y_label = "query",
                    .rows = 700,
                    .columns = 700,
                    .values = std::vector<float>(490000, 0.5F),
                    .span = 1400,
                    .darkest = 1};
  const Image image = decoded(draw(map));
  EXPECT_EQ(gdImageSX(image.get()), 90 + 700 + 130);
  EXPECT_EQ(gdImageSY(image.get()), 50 + 700 + 70);
}

TEST(Picture, OthersReadersFindNoFaultInIt) {
  const test::TemporaryDirectory directory;
  const auto file = directory.path() / "plot.png";
  write_file(file, draw(two_curves()));
  const test::PythonResult result = test::run_python(
      "-c \"import sys; from PIL import Image; Image.open(sys.argv[1]).verify(); image = "
      "Image.open(sys.argv[1]); image.load(); print(image.size, image.text['Software'])\" '" +
      file.string() + "'");
  EXPECT_EQ(result.status, 0);
  EXPECT_EQ(result.output, "(960, 600) transnormer analyze\n");
}

TEST(Picture, IsKnownAsOneOfOurs) {
  const test::TemporaryDirectory directory;
  const auto is_own = [&](const std::string& bytes) {
    write_file(directory.path() / "file", bytes);
    return is_file_of_analysis(InputFile(directory.path() / "file"));
  };
  EXPECT_TRUE(is_own(draw(two_curves())));
  EXPECT_TRUE(is_own("query,0,1\n0,1,0\n"));
  EXPECT_TRUE(is_own("share,layer_0,mean\n"));
  EXPECT_FALSE(is_own("share of mine\n"));
  EXPECT_FALSE(is_own(""));
  const Image foreign(gdImageCreateTrueColor(9, 9), gdImageDestroy);
  int size = 0;
  const std::unique_ptr<void, void (*)(void*)> png(gdImagePngPtr(foreign.get(), &size), gdFree);
  EXPECT_FALSE(
      is_own(std::string(static_cast<const char*>(png.get()), static_cast<std::size_t>(size))));
}

}  // namespace
}  // namespace transnormer
