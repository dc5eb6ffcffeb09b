#include "checkpoint/identity.h"

#include "checkpoint/layout.h"
#include "util/file.h"

namespace transnormer {
namespace fs = std::filesystem;

std::optional<fs::path> run_of(const Checkpoint& checkpoint) {
  // From within a run its path has no parents.
  const fs::path checkpoints = resolve_path(fs::absolute(checkpoint.path())).parent_path();
  const fs::path run = checkpoints.parent_path();
  const bool is_run =
      checkpoints.filename() == kCheckpointsDirectory && has_entry(run / kConfigFile);
  return is_run ? std::optional(run) : std::nullopt;
}

const std::string& weights_digest(const Checkpoint& checkpoint) {
  return checkpoint.manifest().files.at(kModelFile).sha256;
}

}  // namespace transnormer
