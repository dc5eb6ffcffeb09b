// Where a run stands, from what its directory tells: read, never changed.
#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "config/config.h"

namespace transnormer::cli {

struct RunSummary {
  std::string name;
  std::int64_t step = 0;   // of the newest checkpoint
  std::int64_t steps = 0;  // train.steps; 0: until max_epochs
  std::int64_t tokens = 0;
  double elapsed_s = 0;
  bool is_finished = false;
  bool is_running = false;    // a process holds the directory
  std::string ending;         // why it ended, or what it last said of a stop; may be empty
  std::int64_t saved_at = 0;  // seconds since 1970, UTC
  struct Validation {
    std::int64_t step = 0;
    double loss = 0;  // nats a token
  };
  std::optional<Validation> last;
  std::optional<Validation> best;
};

// Nothing where the directory is no run's, or holds no checkpoint. Throws UserError where what it
// holds cannot be read.
[[nodiscard]] std::optional<RunSummary> summary_of_run(const std::filesystem::path& directory);

// Lines for people; and the same as JSON.
[[nodiscard]] std::string to_text(const RunSummary& summary);
[[nodiscard]] nlohmann::ordered_json to_json(const RunSummary& summary);

}  // namespace transnormer::cli
