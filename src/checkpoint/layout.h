// Names inside a run directory and a checkpoint. Internal to src/checkpoint.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace transnormer {

inline constexpr const char* kCheckpointsDirectory = "checkpoints";
inline constexpr const char* kLatestLink = "latest";
inline constexpr const char* kBestLink = "best";

inline constexpr const char* kManifestFile = "manifest.json";
inline constexpr const char* kModelFile = "model.safetensors";
inline constexpr const char* kOptimizerFile = "optimizer.safetensors";
inline constexpr const char* kStateFile = "state.json";
inline constexpr const char* kConfigFile = "config.json";
inline constexpr const char* kUnigramFile = "unigram.bin";

// 1000 -> "step-00001000", and back (nothing for other names).
[[nodiscard]] std::string checkpoint_name(std::int64_t step);
[[nodiscard]] std::optional<std::int64_t> checkpoint_step(const std::string& name);

// What is being written, or removed: never a checkpoint.
[[nodiscard]] std::string temporary_name(std::int64_t step);
// The checkpoint that one of the same step is about to replace.
[[nodiscard]] std::string replaced_name(std::int64_t step);
// A damaged checkpoint that was passed over: kept for people, of no use to the program.
[[nodiscard]] std::string damaged_name(std::int64_t step);

// These throw UserError where the answer cannot be read: then nothing must be taken as absent.
[[nodiscard]] bool is_whole_checkpoint(const std::filesystem::path& directory);
// Steps of the whole checkpoints in `checkpoints`, ascending; none where it does not exist.
[[nodiscard]] std::vector<std::int64_t> whole_checkpoints(const std::filesystem::path& checkpoints);
// The step that a link (`latest`, `best`) leads to, if a whole checkpoint is there.
[[nodiscard]] std::optional<std::int64_t> linked_step(const std::filesystem::path& link);

// Removes a directory of checkpoints' making in one step, as far as others can see.
void remove_checkpoint(const std::filesystem::path& checkpoints, std::int64_t step);

// Puts right what a killed save or removal left: temporary directories and links go, a checkpoint
// that was to be replaced gets its name back where nothing took its place. Throws WriteError.
void clean_checkpoints(const std::filesystem::path& checkpoints);

}  // namespace transnormer
