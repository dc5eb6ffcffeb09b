#include "train/retry.h"

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "checkpoint/checkpoint.h"
#include "checkpoint/identity.h"
#include "train/initial_weights.h"
#include "train/resume.h"
#include "util/error.h"
#include "util/units.h"

namespace transnormer {
namespace {

constexpr const char* kRetried = "divergence_retried";

bool is_of_retry(const log::NoteEvent& note) {
  return note.name == kRetried;
}

// Rank 0 chooses, since it alone may find and set aside damaged ones.
StartingPoint choose_again(const TrainingRun& run, std::int64_t sound_until) {
  StartingPoint start;
  const std::string place = run.world.word_of_first([&] {
    start = newest_sound(run.directory, sound_until);
    if (!start.checkpoint && run.forked_from) {
      start.checkpoint = Checkpoint::open(*run.forked_from);
    }
    return start.checkpoint ? start.checkpoint->path().string() : "";
  });
  if (!run.world.is_first() && !place.empty()) {
    start.checkpoint = Checkpoint::open(place);
  }
  return start;
}

// Weights that may be others than those the run once began with are none to begin anew with.
Checkpoint open_again(const TrainingRun& run) {
  std::optional<Checkpoint> initial = open_initial_weights(run.config);
  const std::string& digest = run.state.initial_weights_digest;
  if (digest.empty()) {
    throw UserError("train.init_from: which weights this run began with is not recorded in " +
                    run.directory.path().string() + ", saved by an earlier version");
  }
  if (weights_digest(*initial) != digest) {
    throw UserError("train.init_from: the weights of " + initial->path().string() +
                    " are not those that this run began with");
  }
  return std::move(*initial);
}

// A run that was resumed has not opened what it once began with. Throws DivergedError where that is
// not to be had any more.
void find_initial_weights(TrainingRun& run, const std::string& divergence) {
  if (run.initial || run.config.train.init_from.empty()) {
    return;
  }
  const auto found = nlohmann::json::parse(run.world.word_of_first([&run] {
    try {
      run.initial = open_again(run);
      return nlohmann::json{{"place", run.initial->path().string()}}.dump();
    } catch (const UserError& error) {
      return nlohmann::json{{"fault", error.what()}}.dump();
    }
  }));
  if (found.contains("fault")) {
    throw DivergedError(
        divergence + "; there is nothing to go back to: " + found.at("fault").get<std::string>());
  }
  if (!run.world.is_first()) {
    run.initial = Checkpoint::open(found.at("place").get<std::string>());
  }
}

void start_again(TrainingRun& run, const Divergence::Facts& divergence) {
  StartingPoint start = choose_again(run, divergence.sound_until);
  if (!start.checkpoint) {
    find_initial_weights(run, divergence.summary);
  }
  run.warnings = std::move(start.warnings);
  run.changes.clear();
  std::erase_if(run.notes, [](const log::NoteEvent& note) { return !is_of_retry(note); });
  if (start.checkpoint) {
    start_from(run, start);
  } else {
    start_anew(run);
  }
  require_equal_weights(run);
}

}  // namespace

bool may_go_back(const TrainingRun& run) {
  return run.state.divergence_retries < run.config.train.divergence_retries;
}

void go_back(TrainingRun& run, const Divergence::Facts& divergence) {
  const std::int64_t retries = run.state.divergence_retries + 1;
  const std::int64_t passed_over = run.state.samples_passed_over;
  start_again(run, divergence);
  TrainingState& state = run.state;
  const std::int64_t samples =
      (divergence.updates - state.step) * run.config.train.global_batch_size;
  state.divergence_retries = retries;
  state.samples_passed_over = passed_over + samples;
  // What was told of earlier retries is cut away where this one goes back further, so told again.
  std::erase_if(run.notes, [&state](const log::NoteEvent& note) {
    return is_of_retry(note) && note.step <= state.step;
  });
  const std::int64_t left = run.config.train.divergence_retries - retries;
  run.notes.push_back({.name = kRetried,
                       .message = divergence.summary + "; gone back to step " +
                                  format_count(state.step) + ", " + format_count(samples) +
                                  " samples are passed over, " + format_count(left) +
                                  (left == 1 ? " retry is left" : " retries are left"),
                       .level = log::Level::warning});
  for (log::NoteEvent& note : run.notes) {
    note.step = state.step;
  }
}

}  // namespace transnormer
