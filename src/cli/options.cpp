#include "cli/options.h"

#include <filesystem>
#include <utility>

#include "config/json_tree.h"
#include "log/console.h"
#include "util/file.h"
#include "util/home.h"
#include "util/processors.h"
#include "util/units.h"

namespace transnormer::cli {

LoadedConfig reported(LoadedConfig loaded, ConfigReader reader) {
  log::set_level(loaded.config.log.level);
  for (const std::string& warning : loaded.warnings) {
    log::warn(warning);
  }
  for (const std::string& unread : unread_sets(loaded, reader)) {
    log::warn(unread);
  }
  return loaded;
}

std::optional<std::string> slow_precision(Precision precision, at::Device device) {
  if (precision == Precision::fp16 && device.is_cpu()) {
    return "precision: fp16 is correct but slow on a CPU; bf16 is faster";
  }
  return std::nullopt;
}

std::optional<std::string> too_many_threads(const TrainConfig& config) {
  constexpr std::int64_t kFar = 2;  // two a core are common
  if (config.threads > kFar * processors()) {
    return "train.threads: " + format_count(config.threads) +
           " threads slow each other down where this process may use " +
           format_count(processors()) + " processors; 0 takes one for each";
  }
  return std::nullopt;
}

void add_sets(CLI::App& command, std::vector<std::string>& sets) {
  command.add_option("--set", sets, "Set a key of the config, as model.dim=256 (repeatable)")
      ->type_name("KEY=VALUE")
      ->allow_extra_args(false);
}

namespace {

CLI::Validator path_reader() {
  const auto read = [](std::string& name) -> std::string {
    name = expand_home(name);
    return name.empty() ? "the name is empty; expected that of a file or directory" : "";
  };
  return {read, ""};
}

}  // namespace

CLI::Option* add_path(CLI::App& command, const std::string& option, std::string& path,
                      const std::string& help) {
  return command.add_option(option, path, help)->transform(path_reader())->type_name("PATH");
}

CLI::Option* add_paths(CLI::App& command, const std::string& option,
                       std::vector<std::string>& paths, const std::string& help) {
  return command.add_option(option, paths, help)->transform(path_reader())->type_name("PATH");
}

void require_replaceable(const std::string& option, const std::string& path,
                         const std::string& kind,
                         const std::function<bool(const InputFile& file)>& is_of_kind) {
  std::error_code none;
  const bool is_stream = path.starts_with("/dev/") || path.starts_with("/proc/");
  if (is_stream || !std::filesystem::is_regular_file(path, none)) {
    return;
  }
  const InputFile file(path);
  if (file.size() > 0 && !is_of_kind(file)) {
    throw UserError(option + ": " + path + " exists and is not " + kind +
                    ", so it is not replaced; name another file or remove it");
  }
}

void require_replaceable(const std::string& option, const std::string& path,
                         const std::string& kind, std::string_view beginning) {
  require_replaceable(option, path, kind, [beginning](const InputFile& file) {
    std::string head(beginning.size(), ' ');
    if (file.size() < std::ssize(head)) {
      return false;
    }
    file.read_at(0, head.data(), head.size());
    return head == beginning;
  });
}

std::int64_t read_integer(const std::string& option, const std::string& text,
                          const IntegerRange& range) {
  const std::optional<std::int64_t> value = parse_integer(text);
  if (!value || *value < range.min || *value > range.max) {
    throw UserError(option + " is " + printable(text, true) + "; expected " + describe(range));
  }
  return *value;
}

double read_number(const std::string& option, const std::string& text, const NumberRange& range) {
  const std::optional<double> value = parse_real(text);
  if (!value || !contains(range, *value)) {
    throw UserError(option + " is " + printable(text, true) + "; expected " + describe(range));
  }
  return *value;
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
