#include "cli/options.h"

#include <span>

#include "config/names.h"
#include "util/error.h"

namespace transnormer::cli {
namespace {

template <class E>
std::string spell(std::span<const Named<E>> names, const char* between) {
  std::string list;
  for (const Named<E>& named : names) {
    list += (list.empty() ? "" : between) + std::string(named.name);
  }
  return list;
}

template <class E>
void add_choice(CLI::App& command, const std::string& option, std::span<const Named<E>> names,
                std::optional<E>& value, const std::string& help) {
  command
      .add_option_function<std::string>(
          option,
          [option, names, &value](const std::string& text) {
            for (const Named<E>& named : names) {
              if (text == named.name) {
                value = named.value;
                return;
              }
            }
            throw UserError(option + " is \"" + text + "\"; it can be " + spell(names, ", "));
          },
          help)
      ->type_name(spell(names, "|"));
}

}  // namespace

void add_sets(CLI::App& command, std::vector<std::string>& sets) {
  command.add_option("--set", sets, "Set a key of the config, as model.dim=256 (repeatable)")
      ->type_name("KEY=VALUE")
      ->allow_extra_args(false);
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
