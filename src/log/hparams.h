// What TensorBoard's HPARAMS tab shows of a run: its settings beside its best and last validation.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "log/events.h"

namespace transnormer::log {

using SettingValue = std::variant<bool, double, std::string>;
using Settings = std::vector<std::pair<std::string, SettingValue>>;  // by dotted key

struct HparamsOptions {
  Settings settings;
  std::int64_t first_step = 0;  // updates made before this session
  std::optional<ValidEvent> best_so_far =
      {};  // of another directory, too, where a run goes on from
  StillOurs still_ours = {};
};

// A TensorBoard run of its own in `directory`, which must hold nothing else: the tab takes every
// scalar of a run for a metric, so it is given none but "best_valid/loss", "last_valid/loss" and so
// on. Of several descriptions of a run the tab believes the first, so the settings stand in a file
// that comes before all others and is replaced by each session; one run is one line, with the
// settings of its newest session. A run that ended in another way than by a stop has a status.
// Throws WriteError where the files cannot be opened.
[[nodiscard]] std::unique_ptr<EventSink> make_hparams_sink(const std::filesystem::path& directory,
                                                           HparamsOptions options);

}  // namespace transnormer::log
