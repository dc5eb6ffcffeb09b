// Continues validation.prompts after a validation, for people to read beside the losses. Nothing of
// the training depends on it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "train/events.h"
#include "train/training_run.h"

namespace transnormer {

// How: greedy decoding of a young model repeats itself, so tokens are drawn. The draws are a
// function of train.seed, the step and the prompt's number.
inline constexpr std::int64_t kPromptTokens = 64;
inline constexpr double kPromptTemperature = 0.8;
inline constexpr std::int64_t kPromptTopK = 50;

// Throws UserError where the run's prompts cannot be continued: its task does not make text, its
// model cannot decode, or has no position left behind a prompt. Returns a warning where they never
// will be, since nothing is validated.
[[nodiscard]] std::vector<std::string> check_prompts(const TrainingRun& run);

// What follows a prompt at the present step; empty where should_stop said so on the way.
[[nodiscard]] std::string continue_prompt(const TrainingRun& run, std::size_t number,
                                          const std::function<bool()>& should_stop);

// All of them, told as events "sample" and as texts "samples/1" and on. Ends early where
// should_stop says so; what fails is a warning.
void continue_prompts(const TrainingRun& run, Events& events,
                      const std::function<bool()>& should_stop);

// Prompt and continuation in one line of at most `most` bytes.
[[nodiscard]] std::string in_one_line(const std::string& text, std::size_t most);

}  // namespace transnormer
