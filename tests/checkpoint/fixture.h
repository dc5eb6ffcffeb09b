// A tiny training to be saved.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "checkpoint/checkpoint.h"
#include "checkpoint/save.h"

namespace transnormer::test {

// Weights, optimizer and state differ with `seed`.
class TinyTraining {
 public:
  explicit TinyTraining(std::uint64_t seed = 1);

  [[nodiscard]] CheckpointContent content() const;
  // Makes the run directory, too.
  std::filesystem::path save(const std::filesystem::path& run_dir, std::int64_t step,
                             const std::function<void(SaveStage)>& on_stage = {});

  Config config;
  std::shared_ptr<const Tokenizer> tokenizer;
  std::shared_ptr<TransNormer> model;
  std::unique_ptr<Optimizer> optimizer;
  TrainingState state;
  std::vector<std::int64_t> unigram_counts;
};

// The first tensor that differs in a bit, or "".
[[nodiscard]] std::string first_difference(const std::vector<NamedTensor>& a,
                                           const std::vector<NamedTensor>& b);

// The message of the UserError that `call` throws, or "nothing was thrown".
[[nodiscard]] std::string user_error_of(const std::function<void()>& call);

}  // namespace transnormer::test
