#include "checkpoint/save.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstring>
#include <string>
#include <utility>

#include "checkpoint/layout.h"
#include "checkpoint/manifest.h"
#include "checkpoint/removal.h"
#include "checkpoint/safetensors.h"
#include "checkpoint/unigram_file.h"
#include "config/load.h"
#include "util/error.h"
#include "util/file.h"
#include "util/hash.h"
#include "util/version.h"

namespace transnormer {
namespace fs = std::filesystem;
namespace {

// Makes a directory in one that is there. Throws WriteError.
void make_directory(const fs::path& path) {
  if (::mkdir(path.c_str(), 0777) != 0) {
    throw WriteError(path.string() + ": cannot be made: " + system_reason(errno));
  }
}

// The directory that becomes the checkpoint; its files are removed unless it got its name.
class TemporaryCheckpoint {
 public:
  explicit TemporaryCheckpoint(fs::path path) : path_(std::move(path)) {
    std::error_code none;
    if (fs::is_directory(fs::symlink_status(path_, none))) {
      remove_checkpoint_files(path_);
    }
    make_directory(path_);
  }
  ~TemporaryCheckpoint() {
    try {
      remove_checkpoint_files(path_, heir_);
    } catch (const UserError&) {  // what is left goes when the run is opened next
    }
  }
  TemporaryCheckpoint(const TemporaryCheckpoint&) = delete;
  TemporaryCheckpoint& operator=(const TemporaryCheckpoint&) = delete;

  // What others put into the directory goes there.
  void set_heir(fs::path heir) { heir_ = std::move(heir); }

  void write_tensors(const char* name, const std::vector<NamedTensor>& tensors) {
    const std::string sha256 = write_safetensors(path_ / name, tensors);
    manifest_.files[name] = {size_of(name), sha256};
  }

  void write_bytes(const std::string& name, const std::string& bytes) {
    write_file(path_ / name, bytes);
    manifest_.files[name] = {static_cast<std::int64_t>(bytes.size()), sha256(bytes)};
  }

  void write_manifest(const TrainingState& state) {
    manifest_.format = kCheckpointFormat;
    manifest_.program = std::string("transnormer ") + program_version();
    manifest_.step = state.step;
    manifest_.tokens = state.tokens;
    write_file(path_ / kManifestFile, manifest_to_json(manifest_));
    sync_directory(path_);
  }

  [[nodiscard]] const fs::path& path() const { return path_; }

 private:
  [[nodiscard]] std::int64_t size_of(const char* name) const {
    std::error_code error;
    const auto size = fs::file_size(path_ / name, error);
    if (error) {
      throw WriteError((path_ / name).string() + ": cannot be written: " + error.message());
    }
    return static_cast<std::int64_t>(size);
  }

  fs::path path_;
  fs::path heir_;
  Manifest manifest_;
};

[[noreturn]] void fail_to_name(const fs::path& target) {
  throw WriteError(target.string() + ": cannot be given its name: " + system_reason(errno));
}

bool rename_path(const fs::path& from, const fs::path& to) {
  return ::rename(from.c_str(), to.c_str()) == 0;
}

// Gives the temporary directory its name. Where a checkpoint has it, the two change places, and the
// old one goes with the temporary name; file systems that cannot do that in one step get a moment
// in which the old one stands aside, from where clean_checkpoints() would bring it back.
void take_name(TemporaryCheckpoint& temporary, const fs::path& target, const fs::path& aside) {
  std::error_code ignored;
  if (!has_entry(target)) {
    if (!rename_path(temporary.path(), target)) {
      fail_to_name(target);
    }
    return;
  }
  if (!fs::is_directory(target, ignored)) {
    throw WriteError(target.string() + ": cannot be given its name: it is that of a file");
  }
  temporary.set_heir(target);
  if (::renameat2(AT_FDCWD, temporary.path().c_str(), AT_FDCWD, target.c_str(), RENAME_EXCHANGE) ==
      0) {
    return;
  }
  if (!rename_path(target, aside)) {
    fail_to_name(target);
  }
  if (!rename_path(temporary.path(), target)) {
    const int why = errno;
    rename_path(aside, target);
    errno = why;
    fail_to_name(target);
  }
  try {
    remove_checkpoint_files(aside, target);
  } catch (const UserError&) {  // the checkpoint has its name; the rest goes when the run is opened
  }
}

}  // namespace

fs::path save_checkpoint(const fs::path& run_dir, const CheckpointContent& content,
                         const std::function<void(SaveStage)>& on_stage) {
  const auto passed = [&on_stage](SaveStage stage) {
    if (on_stage) {
      on_stage(stage);
    }
  };
  const std::int64_t step = content.state.step;
  const fs::path checkpoints = run_dir / kCheckpointsDirectory;
  std::error_code none;
  if (!fs::is_directory(checkpoints, none)) {
    make_directory(checkpoints);
    sync_directory(run_dir);
  }

  TemporaryCheckpoint temporary(checkpoints / temporary_name(step));
  passed(SaveStage::begun);
  temporary.write_tensors(kModelFile, content.model);
  if (!content.average.empty()) {
    temporary.write_tensors(kAverageFile, content.average);
  }
  passed(SaveStage::model_written);
  temporary.write_tensors(kOptimizerFile, content.optimizer);
  passed(SaveStage::optimizer_written);
  temporary.write_bytes(kStateFile, state_to_json(content.state));
  temporary.write_bytes(kConfigFile, config_to_json(content.config));
  temporary.write_bytes(content.tokenizer.file_name(), content.tokenizer.serialized());
  temporary.write_bytes(kUnigramFile, unigram_to_bytes(content.unigram_counts));
  passed(SaveStage::files_written);
  temporary.write_manifest(content.state);
  passed(SaveStage::manifest_written);

  const std::string name = checkpoint_name(step);
  take_name(temporary, checkpoints / name, checkpoints / replaced_name(step));
  sync_directory(checkpoints);
  passed(SaveStage::renamed);
  return checkpoints / name;
}

}  // namespace transnormer
