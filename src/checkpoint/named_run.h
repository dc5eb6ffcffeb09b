// The run that `train RUN` names.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

namespace transnormer {

// How the config.json of a directory looks. resolved: as a run writes it, every section spelled
// out, by this version or another. other: JSON that no run wrote. damaged: no JSON at all.
enum class RunConfigFile { missing, damaged, other, resolved };

// Throws UserError where it cannot be read.
[[nodiscard]] RunConfigFile look_at_config(const std::filesystem::path& run_dir);

struct NamedRun {
  std::filesystem::path directory;
  // The file that holds the config it goes on with: that of its last start, what was set by `--set`
  // included.
  std::filesystem::path config;
  std::string warning = {};  // where that is gone and the config is another
};

// `named`: a run directory, or the config.json in one, which need not be there. Where that is gone
// or damaged, the newest whole checkpoint has one. Nothing for what is a config of its own or does
// not exist. Throws UserError for a directory that holds no run, and for one whose config is gone
// and that has no checkpoint.
[[nodiscard]] std::optional<NamedRun> named_run(const std::filesystem::path& named);

}  // namespace transnormer
