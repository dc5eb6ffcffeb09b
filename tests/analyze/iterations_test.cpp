#include "analyze/iterations.h"

#include <gtest/gtest.h>

#include <cmath>

#include "util/file.h"
#include "util/temporary_directory.h"

namespace transnormer {
namespace {

TEST(Iterations, AreThoseOfTheLastWholeLineThatTellsThem) {
  const test::TemporaryDirectory directory;
  const auto file = directory.path() / "metrics.jsonl";
  write_file(
      file,
      R"({"kind":"train","step":1,"gradients":{"all":{"relative_std":0.9}}})"
      "\n"
      R"({"kind":"train","step":2,"gradients":{"all":{"relative_std":0.25},"layers.0":{"relative_std":null}}})"
      "\n"
      R"({"kind":"train","step":3,"loss":2})"
      "\n"
      R"({"kind":"train","step":4,"gradients":{"all":{"relative_std":0.7)");
  const auto found = relative_deviations(file);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->at("all"), 0.25);
  EXPECT_TRUE(std::isnan(found->at("layers.0")));
  EXPECT_EQ(found->size(), 2);
}

TEST(Iterations, AreNotThereWhereNoLineTellsThem) {
  const test::TemporaryDirectory directory;
  const auto file = directory.path() / "metrics.jsonl";
  write_file(file, "{\"kind\":\"train\",\"step\":1}\nno json \"relative_std\"\n\n");
  EXPECT_FALSE(relative_deviations(file));
  write_file(file, "");
  EXPECT_FALSE(relative_deviations(file));
}

}  // namespace
}  // namespace transnormer
