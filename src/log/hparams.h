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
  // Of the directory that the run was begun in, too, where it goes on from a checkpoint of another.
  std::optional<ValidEvent> best_so_far = {};
  StillOurs still_ours = {};
};

// A TensorBoard run of its own in `directory`, which must hold nothing else: the tab takes every
// scalar of a run for a metric, so this one has none but "best_valid/loss", "last_valid/loss" and
// so on. Of several descriptions of a run the tab believes the first, so the settings stand in a
// file that comes before all others and is replaced by each session: a run is one line, with the
// settings of its newest session. One that is done, failed or diverged has a status. (No
// description of the whole experiment is written: the tab would believe that of one run for all,
// and finds by itself which settings differ.) Throws WriteError where a file cannot be opened.
[[nodiscard]] std::unique_ptr<EventSink> make_hparams_sink(const std::filesystem::path& directory,
                                                           HparamsOptions options);

}  // namespace transnormer::log
