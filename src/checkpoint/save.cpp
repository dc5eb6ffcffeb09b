#include "checkpoint/save.h"

#include <string>

#include "checkpoint/directory_writer.h"
#include "checkpoint/layout.h"
#include "checkpoint/unigram_file.h"
#include "config/load.h"
#include "util/file.h"

namespace transnormer {
namespace fs = std::filesystem;

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

  DirectoryWriter temporary(checkpoints / temporary_name(step), checkpoint_directory());
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
  temporary.write_manifest({.step = step, .tokens = content.state.tokens});
  passed(SaveStage::manifest_written);

  const std::string name = checkpoint_name(step);
  temporary.take_name(checkpoints / name, checkpoints / replaced_name(step));
  passed(SaveStage::renamed);
  return checkpoints / name;
}

}  // namespace transnormer
