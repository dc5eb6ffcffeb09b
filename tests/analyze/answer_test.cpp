#include "analyze/answer.h"

#include <gtest/gtest.h>

#include <limits>

namespace transnormer {
namespace {

using Json = nlohmann::ordered_json;

Json two_rows() {
  return Json::array({Json{{"layer", 0}, {"name", "diag"}, {"value", 0.123456}, {"has", true}},
                      Json{{"layer", 11}, {"name", "x"}, {"value", nullptr}, {"has", false}}});
}

TEST(Answer, ATableIsALineOfNamesAndOneARow) {
  EXPECT_EQ(to_csv(two_rows()), "layer,name,value,has\n0,diag,0.123456,true\n11,x,,false\n");
}

TEST(Answer, PeopleGetColumnsThreeDigitsAndADashForWhatIsNotThere) {
  EXPECT_EQ(to_text(two_rows()),
            "layer  name  value  has\n"
            "    0  diag  0.123  yes\n"
            "   11     x      -   no\n");
}

TEST(Answer, WhatIsNotFiniteIsNull) {
  EXPECT_TRUE(number(std::numeric_limits<double>::infinity()).is_null());
  EXPECT_TRUE(number(std::numeric_limits<double>::quiet_NaN()).is_null());
  EXPECT_EQ(number(0.5), Json(0.5));
}

}  // namespace
}  // namespace transnormer
