// manifest.json: what makes a directory a whole checkpoint. Written last. An export has one of the
// same form under another name.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "util/error.h"
#include "util/input_file.h"

namespace transnormer {

// The format this program writes, and the newest that it reads.
inline constexpr std::int64_t kCheckpointFormat = 1;

// The checkpoint is sound, but a newer program wrote it: nothing here may replace or remove it.
class NewerFormatError : public UserError {
 public:
  using UserError::UserError;
};

// The checkpoint is surely damaged: a file is missing, of a wrong size or digest, or its manifest
// or state makes no sense. A file that cannot be read is no proof of that.
class DamagedCheckpointError : public UserError {
 public:
  using UserError::UserError;
};

struct ManifestFile {
  std::int64_t size = 0;  // bytes
  std::string sha256;
};

// A checkpoint whose weights went into an average.
struct AveragedCheckpoint {
  std::string path;  // where it was then, for people
  std::int64_t step = 0;
  std::string model_sha256;  // of its model.safetensors
};

struct Manifest {
  std::int64_t format = 0;
  std::string program = {};  // that wrote it: "transnormer 0.1.0"
  std::int64_t step = 0;
  std::int64_t tokens = 0;
  std::vector<AveragedCheckpoint> averaged = {};   // empty where a training saved it
  std::map<std::string, ManifestFile> files = {};  // by name, without the manifest
};

[[nodiscard]] std::string manifest_to_json(const Manifest& manifest);

// Reads the manifest in `directory` and checks the format before anything else. Throws
// DamagedCheckpointError where it is damaged or foreign, NewerFormatError where it is newer than
// this program, UserError where it cannot be read.
[[nodiscard]] Manifest read_manifest(const std::filesystem::path& directory,
                                     const std::string& file = "manifest.json");

// Opens the files of `wanted`, then compares size and SHA-256 of every file, several at once.
// Returns those of `wanted`, open: what is read from them is what was verified, whatever becomes of
// the checkpoint meanwhile. Throws
// DamagedCheckpointError that names every file that is missing or differs; UserError where one
// cannot be read.
[[nodiscard]] std::map<std::string, InputFile> open_verified(
    const std::filesystem::path& checkpoint, const Manifest& manifest,
    const std::set<std::string>& wanted);

}  // namespace transnormer
