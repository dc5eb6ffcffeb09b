// Names inside a run directory and a checkpoint. For src/checkpoint and who writes the rest of a
// run.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace transnormer {

// Of a run, beside its kConfigFile.
inline constexpr const char* kLogFile = "train.log";
inline constexpr const char* kMetricsFile = "metrics.jsonl";

inline constexpr const char* kCheckpointsDirectory = "checkpoints";
inline constexpr const char* kLatestLink = "latest";
inline constexpr const char* kBestLink = "best";

inline constexpr const char* kManifestFile = "manifest.json";
inline constexpr const char* kModelFile = "model.safetensors";
inline constexpr const char* kOptimizerFile = "optimizer.safetensors";
inline constexpr const char* kAverageFile = "ema.safetensors";  // not in every checkpoint
inline constexpr const char* kStateFile = "state.json";
inline constexpr const char* kConfigFile = "config.json";
inline constexpr const char* kUnigramFile = "unigram.bin";
inline constexpr std::array kTokenizerFiles{"tokenizer.txt", "tokenizer.model",
                                            "tokenizer.json"};  // one of them

// 1000 -> "step-00001000", and back (nothing for other names).
[[nodiscard]] std::string checkpoint_name(std::int64_t step);
[[nodiscard]] std::optional<std::int64_t> checkpoint_step(std::string_view name);

// What this process writes or removes: never a checkpoint. And back, of any process: the number of
// a process stands behind ".tmp-step-00001000.".
[[nodiscard]] std::string temporary_name(std::int64_t step);
[[nodiscard]] std::optional<std::int64_t> temporary_step(std::string_view name);
// The checkpoint that one of the same step is about to replace.
[[nodiscard]] std::string replaced_name(std::int64_t step);
[[nodiscard]] std::optional<std::int64_t> replaced_step(std::string_view name);
// A damaged checkpoint that was passed over: kept for people, of no use to the program.
[[nodiscard]] std::string damaged_name(std::int64_t step);

// What stands in a directory; nothing where it does not exist. Throws UserError where it cannot be
// read.
[[nodiscard]] std::vector<std::filesystem::path> entries_of(const std::filesystem::path& directory);

// These throw UserError where the answer cannot be read: then nothing must be taken as absent. A
// manifest that is a link to itself counts as there, so that it shows as damaged.
[[nodiscard]] bool is_whole_checkpoint(const std::filesystem::path& directory);
// Steps of the whole checkpoints in `checkpoints`, ascending; none where it does not exist. A
// training that makes and removes them meanwhile never leaves a reader without any: that there is
// none is believed only when a second look at the directory finds the same entries.
[[nodiscard]] std::vector<std::int64_t> whole_checkpoints(const std::filesystem::path& checkpoints);

// The step that a link (`latest`, `best`) names, if it is there and names a checkpoint beside it.
[[nodiscard]] std::optional<std::int64_t> linked_step(const std::filesystem::path& link);

// Of the whole checkpoints of these steps (at least one) the one with the best validation loss, as
// the newest one's state tells it; where that one is no longer there, the one that the link `best`
// leads to. Nothing where neither is.
[[nodiscard]] std::optional<std::int64_t> best_checkpoint(const std::filesystem::path& checkpoints,
                                                          const std::vector<std::int64_t>& steps);

}  // namespace transnormer
