// What `eval` was asked for.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/checkpoint.h"
#include "config/config.h"
#include "data/prepare.h"

namespace transnormer::cli {

enum class AnswerForm { people, json, markdown };

struct EvalOptions {
  std::vector<std::string> checkpoints;
  std::string data;
  std::vector<std::string> texts;  // files, globs, "-"
  Split split = Split::test;
  std::optional<std::int64_t> context_window;
  std::string per_token;
  bool ema = false;
  bool json = false;
  bool markdown = false;
  std::vector<std::string> sets;
  std::optional<DeviceChoice> device;
  std::optional<Precision> precision;
  std::optional<std::int64_t> nproc;

  [[nodiscard]] Weights weights() const { return ema ? Weights::ema : Weights::trained; }
  [[nodiscard]] AnswerForm form() const {
    return json ? AnswerForm::json : markdown ? AnswerForm::markdown : AnswerForm::people;
  }
};

}  // namespace transnormer::cli
