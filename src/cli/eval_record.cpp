#include "cli/eval_record.h"

#include <algorithm>
#include <array>
#include <ctime>
#include <nlohmann/json.hpp>

#include "checkpoint/identity.h"
#include "config/names.h"
#include "log/console.h"
#include "util/append_line.h"
#include "util/error.h"

namespace transnormer::cli {
namespace {

namespace fs = std::filesystem;

// How a text is read, or where its tokens are kept, is no other text; the window stands in the
// answer.
bool changes_the_text(const std::string& key) {
  return key.starts_with("data.") && key != "data.cache_dir" && key != "data.tokens_per_sample";
}

// "2024-05-01T12:00:00Z".
std::string date_now() {
  const std::time_t now = std::time(nullptr);
  std::tm utc{};
  ::gmtime_r(&now, &utc);
  std::array<char, 32> text{};
  return {text.data(), std::strftime(text.data(), text.size(), "%Y-%m-%dT%H:%M:%SZ", &utc)};
}

}  // namespace

std::optional<fs::path> record_of(const Scoring& scoring, const EvalOptions& options) {
  if (!options.data.empty() || !scoring.text.empty()) {
    return std::nullopt;
  }
  const Checkpoint& checkpoint = scoring.subject.checkpoint;
  const auto changes = config_changes(checkpoint.config(), scoring.subject.loaded.config);
  if (std::ranges::any_of(
          changes, [](const ConfigChange& change) { return changes_the_text(change.key); })) {
    return std::nullopt;
  }
  const std::optional<fs::path> run = run_of(checkpoint);
  return run ? std::optional(*run / "evals.jsonl") : std::nullopt;
}

void record(const fs::path& file, const Scoring& scoring, const EvalOptions& options,
            const Evaluation& evaluation) {
  using Json = nlohmann::ordered_json;
  const Checkpoint& checkpoint = scoring.subject.checkpoint;
  Json line = {{"step", checkpoint.state().step},
               {"checkpoint", checkpoint.path().filename().string()},
               {"model_sha256", weights_digest(checkpoint)},
               {"weights", options.ema ? "ema" : "raw"},
               {"split", to_string(options.split)},
               {"text_digest", scoring.evaluator->text_digest()},
               {"date", date_now()},
               {"precision", to_string(options.precision.value_or(Precision::fp32))}};
  line.update(*evaluation.answer);
  try {
    append_line(file, line.dump(-1, ' ', false, Json::error_handler_t::replace), "{");
  } catch (const UserError& error) {
    log::warn(std::string(error.what()) + "; the answer is not recorded there");
  } catch (const StoppedError&) {  // while it waited for another process
    log::warn(file.string() + ": stopped before the answer was recorded there");
  }
}

}  // namespace transnormer::cli
