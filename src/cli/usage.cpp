#include "cli/usage.h"

#include <algorithm>
#include <array>
#include <iostream>
#include <optional>
#include <string>
#include <vector>

#include "cli/outcome.h"
#include "config/json_tree.h"
#include "config/listing.h"

namespace transnormer::cli {
namespace {

// The command that was chosen, with the words that chose it.
struct Chosen {
  const CLI::App* command;
  std::string words;
};

Chosen chosen_command(const CLI::App& app) {
  Chosen chosen{&app, app.get_name()};
  while (!chosen.command->get_subcommands().empty()) {
    chosen.command = chosen.command->get_subcommands().front();
    chosen.words += ' ' + chosen.command->get_name();
  }
  return chosen;
}

bool is_option(const std::string& word) {
  return word.size() > 1 && word.starts_with('-');
}

// What stands where a command is expected and is none.
std::optional<std::string> unknown_command(const CLI::App& chosen) {
  const std::vector<std::string> rest = chosen.remaining();
  const auto word = std::find_if_not(rest.begin(), rest.end(), is_option);
  const bool expects_one = !chosen.get_subcommands([](const CLI::App*) { return true; }).empty();
  return expects_one && word != rest.end() ? std::optional(*word) : std::nullopt;
}

// A command of this name inside a group, as `encode` is in `tokenizer`.
std::optional<Chosen> nested_command(const CLI::App& app, const std::string& name) {
  for (const CLI::App* group : app.get_subcommands([](const CLI::App*) { return true; })) {
    for (const CLI::App* command : group->get_subcommands([](const CLI::App*) { return true; })) {
      if (command->get_name() == name) {
        return Chosen{command, app.get_name() + ' ' + group->get_name()};
      }
    }
  }
  return std::nullopt;
}

// The command whose name is spelled nearly so, with the words that choose it.
std::optional<std::string> near_command(const CLI::App& app, const CLI::App& chosen,
                                        const std::string& name) {
  const CLI::App& group =
      chosen.get_subcommands([](const CLI::App*) { return true; }).empty() ? app : chosen;
  std::vector<std::string> names;
  for (const CLI::App* command : group.get_subcommands([](const CLI::App*) { return true; })) {
    names.push_back(command->get_name());
  }
  const std::optional<std::string> near = nearest(name, names);
  const std::string before = &group == &app ? "" : group.get_name() + ' ';
  return near ? std::optional(app.get_name() + ' ' + before + *near) : std::nullopt;
}

std::string describe_unknown_command(const CLI::App& app, const CLI::App& chosen,
                                     const std::string& name) {
  std::optional<std::string> meant;
  if (const std::optional<Chosen> nested = nested_command(app, name)) {
    meant = nested->words + ' ' + name;
  } else {
    meant = near_command(app, chosen, name);
  }
  return "there is no command " + printable(name, true) +
         (meant ? "; did you mean \"" + *meant + "\"?" : "");
}

// The value that was meant for an unknown option: behind its "=", or the next word.
std::string value_of(const std::string& option, std::span<const char* const> arguments) {
  if (const std::size_t equals = option.find('='); equals != std::string::npos) {
    return option.substr(equals + 1);
  }
  const auto found = std::find(arguments.begin(), arguments.end(), option);
  const bool has_next = found != arguments.end() && found + 1 != arguments.end();
  return has_next && !std::string(found[1]).starts_with("--") ? found[1] : "VALUE";
}

// What other programs call our options.
struct OptionAlias {
  const char* word;
  const char* option;
  const char* value = nullptr;  // that the word stands for, else the one behind it
};
constexpr auto kOptionAliases = std::to_array<OptionAlias>({
    {"bf16", "precision", "bf16"}, {"fp16", "precision", "fp16"}, {"fp32", "precision", "fp32"},
    {"amp", "precision", "bf16"},  {"gpu", "device", "cuda"},     {"cuda", "device", "cuda"},
    {"cpu", "device", "cpu"},      {"output-dir", "run-dir"},     {"out-dir", "run-dir"},
    {"save-dir", "run-dir"},       {"output", "run-dir"},         {"out", "run-dir"},
    {"nproc-per-node", "nproc"},   {"num-processes", "nproc"},    {"gpus", "nproc"},
    {"checkpoint", "resume"},      {"resume-from", "resume"},     {"max-new-tokens", "max-tokens"},
    {"length", "max-tokens"},
});

std::vector<std::string> long_names(const CLI::App& command) {
  std::vector<std::string> names;
  for (const CLI::Option* known : command.get_options()) {
    names.insert(names.end(), known->get_lnames().begin(), known->get_lnames().end());
  }
  return names;
}

bool has_option(const CLI::App& command, const std::string& name) {
  const std::vector<std::string> names = long_names(command);
  return std::find(names.begin(), names.end(), name) != names.end();
}

// "--set optimizer.lr=1e-3" for each of the keys, the first few.
std::vector<std::string> as_sets(const std::vector<std::string>& keys, const std::string& value) {
  constexpr std::size_t kMost = 3;
  std::vector<std::string> sets;
  for (const std::string& key : keys) {
    if (sets.size() < kMost) {
      sets.push_back("--set " + key + '=' + value);
    }
  }
  return sets;
}

// What may stand in the place of an unknown option: what others call an option or a key, keys of
// that name, else an option or a key that is spelled nearly so.
std::vector<std::string> meant(const CLI::App& command, const std::string& option,
                               std::span<const char* const> arguments) {
  std::string name = option.substr(0, option.find('='));
  name.erase(0, name.find_first_not_of('-'));
  std::string dashed = name;
  std::replace(dashed.begin(), dashed.end(), '_', '-');
  const std::string value = printable(value_of(option, arguments), false);
  for (const OptionAlias& alias : kOptionAliases) {
    if (dashed == alias.word && has_option(command, alias.option)) {
      return {std::string("--") + alias.option + ' ' +
              (alias.value != nullptr ? alias.value : value)};
    }
  }
  const bool takes_keys = has_option(command, "set");
  if (takes_keys) {
    if (const std::vector<std::string> keys = keys_named(name); !keys.empty()) {
      return as_sets(keys, value);
    }
  }
  if (const std::optional<std::string> near = nearest(dashed, long_names(command))) {
    return {"--" + *near};
  }
  return takes_keys ? as_sets(keys_nearly_named(name), value) : std::vector<std::string>{};
}

std::string describe_unknown_option(const CLI::App& command, const std::string& option,
                                    std::span<const char* const> arguments) {
  const std::vector<std::string> answers = meant(command, option, arguments);
  std::string text = "unknown option " + printable(option.substr(0, option.find('=')), false);
  for (std::size_t i = 0; i < answers.size(); ++i) {
    text += i == 0 ? "; did you mean " : i + 1 == answers.size() ? " or " : ", ";
    text += answers[i];
  }
  return text + (answers.empty() ? "" : "?");
}

}  // namespace

int answer(const CLI::App& app, const CLI::ParseError& error,
           std::span<const char* const> arguments) {
  const CLI::App& chosen = *chosen_command(app).command;
  const bool is_question = error.get_exit_code() == 0;  // --help or --version
  const std::optional<std::string> unknown = unknown_command(chosen);
  if (is_question && unknown) {
    if (const std::optional<Chosen> nested = nested_command(app, *unknown)) {
      std::cout << nested->command->help(nested->words);
      return finish(ExitStatus::done);
    }
  } else if (is_question) {
    app.exit(error);
    return finish(ExitStatus::done);
  }
  std::string fault = unknown ? describe_unknown_command(app, chosen, *unknown) : error.what();
  const std::vector<std::string> rest = chosen.remaining();
  if (!unknown && !rest.empty()) {
    const auto option = std::find_if(rest.begin(), rest.end(), is_option);
    fault = option != rest.end() ? describe_unknown_option(chosen, *option, arguments)
                                 : "unexpected argument " + printable(rest.front(), true);
  }
  return fail(ExitStatus::user_fault, fault + " (see --help)");
}

}  // namespace transnormer::cli
