// Options that several commands share, and what every command does with a config.
#pragma once

#include <ATen/core/Tensor.h>

#include <CLI/CLI.hpp>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cli/unread_keys.h"
#include "config/config.h"
#include "config/fields.h"
#include "config/json_tree.h"
#include "config/listing.h"
#include "config/load.h"
#include "config/names.h"
#include "util/error.h"
#include "util/input_file.h"

namespace transnormer::cli {

// What is done with a config that a command reads: its log.level holds from here on, its warnings
// are logged. `train` alone keeps the warnings until it can write them into the run's log, too.
// Those of --set that the command does not read are warned of as well.
[[nodiscard]] LoadedConfig reported(LoadedConfig loaded, ConfigReader reader);

// A warning where products of this precision are slow on this device.
[[nodiscard]] std::optional<std::string> slow_precision(Precision precision, at::Device device);

// A warning where a config asks for far more threads than there are processors for them.
[[nodiscard]] std::optional<std::string> too_many_threads(const TrainConfig& config);

// `--set a.b=v`, as often as wanted; one value each, so that a positional may follow.
void add_sets(CLI::App& command, std::vector<std::string>& sets);

// An option or argument that names a file or directory, "~" being the home directory where no shell
// has put that in its place. An empty name is refused.
CLI::Option* add_path(CLI::App& command, const std::string& option, std::string& path,
                      const std::string& help);
// One that may be given several times, or takes several.
CLI::Option* add_paths(CLI::App& command, const std::string& option,
                       std::vector<std::string>& paths, const std::string& help);

// An answer takes the place of an existing file only where that, by its content, is an answer of
// the same kind: never a model, a text or a config that was named by mistake. Throws UserError.
// `kind` is what the file should be ("a table of bench"); `is_of_kind` judges one that is not
// empty.
void require_replaceable(const std::string& option, const std::string& path,
                         const std::string& kind,
                         const std::function<bool(const InputFile& file)>& is_of_kind);
// For answers that are told by how they begin.
void require_replaceable(const std::string& option, const std::string& path,
                         const std::string& kind, std::string_view beginning);

// A number from the command line: decimal and in range. Throws UserError.
[[nodiscard]] std::int64_t read_integer(const std::string& option, const std::string& text,
                                        const IntegerRange& range);
[[nodiscard]] double read_number(const std::string& option, const std::string& text,
                                 const NumberRange& range);

// An option that takes such a number; `value` is a number or an optional one. The library would
// take hexadecimal, octal and what does not fit, too.
template <class Value>
CLI::Option* add_integer(CLI::App& command, const std::string& option, Value& value,
                         const IntegerRange& range, const std::string& help) {
  const auto read = [option, range, &value](const std::string& text) {
    value = read_integer(option, text, range);
  };
  return command.add_option_function<std::string>(option, read, help)->type_name("INTEGER");
}
template <class Value>
CLI::Option* add_number(CLI::App& command, const std::string& option, Value& value,
                        const NumberRange& range, const std::string& help) {
  const auto read = [option, range, &value](const std::string& text) {
    value = read_number(option, text, range);
  };
  return command.add_option_function<std::string>(option, read, help)->type_name("NUMBER");
}

// `--device auto|cpu|cuda` and `--precision fp32|bf16|fp16`. `otherwise` says in the help what
// holds without the option.
void add_device(CLI::App& command, std::optional<DeviceChoice>& device,
                const std::string& otherwise);
void add_precision(CLI::App& command, std::optional<Precision>& precision,
                   const std::string& otherwise);

template <class E>
[[nodiscard]] std::vector<std::string> names_of(std::span<const Named<E>> names) {
  std::vector<std::string> list;
  for (const Named<E>& named : names) {
    list.emplace_back(named.name);
  }
  return list;
}

template <class E>
[[nodiscard]] std::string spell(std::span<const Named<E>> names, const char* between) {
  std::string list;
  for (const Named<E>& named : names) {
    list += (list.empty() ? "" : between) + std::string(named.name);
  }
  return list;
}

// An option with a few spellings; `value` is an E or an optional of it. A name that is not known
// throws UserError while the command line is read.
template <class E, class Value>
CLI::Option* add_choice(CLI::App& command, const std::string& option,
                        std::span<const Named<E>> names, Value& value, const std::string& help) {
  return command
      .add_option_function<std::string>(
          option,
          [option, names, &value](const std::string& text) {
            for (const Named<E>& named : names) {
              if (text == named.name) {
                value = named.value;
                return;
              }
            }
            throw UserError(option + " is " + printable(text, true) + "; it can be " +
                            spell(names, ", ") + hint_of_choice(text, names_of(names)));
          },
          help)
      ->type_name(spell(names, "|"));
}

}  // namespace transnormer::cli
