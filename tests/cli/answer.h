// The answer of a command in this process, where what a test adds to the program is known.
#pragma once

#include <gtest/gtest.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "cli/commands.h"

namespace transnormer::test {

// `add`: as cli::add_eval; `arguments` begin with the command's name and end with --json.
inline nlohmann::json answer_of(void (*add)(CLI::App&, cli::Run&),
                                std::vector<std::string> arguments) {
  CLI::App app;
  cli::Run run;
  add(app, run);
  std::reverse(arguments.begin(), arguments.end());  // as CLI11 takes them
  testing::internal::CaptureStdout();
  app.parse(arguments);
  const ExitStatus status = run();
  std::cout.flush();
  std::fflush(stdout);
  const std::string answer = testing::internal::GetCapturedStdout();
  EXPECT_EQ(status, ExitStatus::done);
  return nlohmann::json::parse(answer);
}

}  // namespace transnormer::test
