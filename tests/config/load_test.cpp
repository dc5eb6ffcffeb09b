#include "config/load.h"

#include <gtest/gtest.h>

namespace transnormer {

TEST(ResolvedConfig, LoadsAgainEqualToItself) {
  const Config once = parse_config("{}", "x.json", {"model.variant=t1"}).config;
  EXPECT_EQ(parse_config(config_to_json(once), "y.json").config, once);
}

}  // namespace transnormer
