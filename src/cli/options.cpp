#include "cli/options.h"

#include <filesystem>
#include <utility>

#include "log/console.h"
#include "util/file.h"

namespace transnormer::cli {

LoadedConfig reported(LoadedConfig loaded) {
  log::set_level(loaded.config.log.level);
  for (const std::string& warning : loaded.warnings) {
    log::warn(warning);
  }
  return loaded;
}

std::optional<std::string> slow_precision(Precision precision, at::Device device) {
  if (precision == Precision::fp16 && device.is_cpu()) {
    return "precision: fp16 is correct but slow on a CPU; bf16 is faster";
  }
  return std::nullopt;
}

void add_sets(CLI::App& command, std::vector<std::string>& sets) {
  command.add_option("--set", sets, "Set a key of the config, as model.dim=256 (repeatable)")
      ->type_name("KEY=VALUE")
      ->allow_extra_args(false);
}

CLI::Option* add_path(CLI::App& command, const std::string& option, std::string& path,
                      const std::string& help) {
  return command.add_option(option, path, help)->check([](const std::string& name) {
    return name.empty() ? "the name is empty; expected that of a file or directory" : "";
  });
}

void require_replaceable(const std::string& option, const std::string& path,
                         const std::string& kind,
                         const std::function<bool(std::string_view content)>& is_of_kind) {
  std::error_code none;
  const bool is_stream = path.starts_with("/dev/") || path.starts_with("/proc/");
  if (is_stream || !std::filesystem::is_regular_file(path, none)) {
    return;
  }
  const std::string content = read_file(path);
  if (!content.empty() && !is_of_kind(content)) {
    throw UserError(option + ": " + path + " exists and is not " + kind +
                    ", so it is not replaced; name another file or remove it");
  }
}

void add_device(CLI::App& command, std::optional<DeviceChoice>& device,
                const std::string& otherwise) {
  add_choice<DeviceChoice>(command, "--device", kDeviceNames, device,
                           "Where to compute (" + otherwise + " unless told)");
}

void add_precision(CLI::App& command, std::optional<Precision>& precision,
                   const std::string& otherwise) {
  add_choice<Precision>(command, "--precision", kPrecisionNames, precision,
                        "Type of the matrix products (" + otherwise + " unless told)");
}

}  // namespace transnormer::cli
