// state.json of a checkpoint.
#include <string>

#include "checkpoint/state_check.h"
#include "checkpoint/training_state.h"
#include "fuzz/fuzzer.h"

namespace {

namespace fuzz = transnormer::fuzz;
using transnormer::TrainingState;

void check(const TrainingState& state) {
  const std::string written = state_to_json(state);
  fuzz::require(state_to_json(transnormer::state_from_json(written, "written")) == written,
                "a state that is written is read as the same");
  for (const auto& [group, moments] : state.gradient_moments) {
    static_cast<void>(moments.relative_std());
  }
}

}  // namespace

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string bytes(fuzz::bytes_of(data, size));
  TrainingState state;
  const bool is_sound = fuzz::reads([&] {
    state = transnormer::state_from_json(bytes, "state.json");
    check_state(state, "state.json");
  });
  if (is_sound) {
    check(state);
  }
  return 0;
}
