#include "task/objective.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "config/load.h"
#include "task/causal.h"
#include "util/error.h"

namespace transnormer {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::ThrowsMessage;

TEST(Objective, OneThatIsAddedIsAChoiceOfTheConfig) {
  const auto load = [] {
    return parse_config(R"({"train": {"objective": "counting"}})", "config").config;
  };
  EXPECT_THAT(
      load, ThrowsMessage<UserError>(AllOf(HasSubstr("train.objective"), HasSubstr("\"causal\""))));
  add_objective("counting", std::make_unique<CausalObjective>());
  EXPECT_EQ(load().train.objective, "counting");
  EXPECT_THAT(config_schema(), HasSubstr("counting"));
  EXPECT_NE(dynamic_cast<const CausalObjective*>(&objective("counting")), nullptr);
}

TEST(Objective, OfCausalModelsRefusesOthersInOneLine) {
  ModelConfig model;
  objective("causal").require_model(model);
  model.causal = false;
  EXPECT_THAT([&] { objective("causal").require_model(model); },
              ThrowsMessage<UserError>(HasSubstr("model.causal: expected true")));
}

}  // namespace
}  // namespace transnormer
