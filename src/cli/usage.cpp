#include "cli/usage.h"

#include <algorithm>
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

std::string describe_unknown_command(const CLI::App& app, const std::string& name) {
  const std::optional<Chosen> nested = nested_command(app, name);
  return "there is no command " + printable(name, true) +
         (nested ? "; did you mean \"" + nested->words + ' ' + name + "\"?" : "");
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

// What may stand in the place of an unknown option: keys of that name to set, else an option that
// is spelled nearly so.
std::vector<std::string> meant(const CLI::App& command, const std::string& option,
                               std::span<const char* const> arguments) {
  std::string name = option.substr(0, option.find('='));
  name.erase(0, name.find_first_not_of('-'));
  std::vector<std::string> options;
  for (const CLI::Option* known : command.get_options()) {
    options.insert(options.end(), known->get_lnames().begin(), known->get_lnames().end());
  }
  std::vector<std::string> answers;
  if (std::find(options.begin(), options.end(), "set") != options.end()) {
    constexpr std::size_t kMost = 3;
    for (const std::string& key : keys_named(name)) {
      if (answers.size() < kMost) {
        answers.push_back("--set " + key + "=" + printable(value_of(option, arguments), false));
      }
    }
  }
  if (answers.empty()) {
    if (const std::optional<std::string> near = nearest(name, options)) {
      answers.push_back("--" + *near);
    }
  }
  return answers;
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
  std::string fault = unknown ? describe_unknown_command(app, *unknown) : error.what();
  const std::vector<std::string> rest = chosen.remaining();
  if (!unknown && !rest.empty()) {
    const auto option = std::find_if(rest.begin(), rest.end(), is_option);
    fault = option != rest.end() ? describe_unknown_option(chosen, *option, arguments)
                                 : "unexpected argument " + printable(rest.front(), true);
  }
  return fail(ExitStatus::user_fault, fault + " (see --help)");
}

}  // namespace transnormer::cli
