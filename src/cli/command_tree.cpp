#include "cli/command_tree.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <sstream>

namespace transnormer::cli {
namespace {

// The alternatives of "auto|never|CHECKPOINT".
std::vector<std::string> alternatives_of(const std::string& value) {
  std::vector<std::string> parts;
  std::istringstream stream(value);
  for (std::string part; std::getline(stream, part, '|');) {
    parts.push_back(part);
  }
  return parts;
}

// Words in capitals stand for something, others for themselves.
bool is_placeholder(const std::string& word) {
  return std::none_of(word.begin(), word.end(),
                      [](unsigned char c) { return std::islower(c) != 0; });
}

bool is_place(const std::string& word) {
  constexpr std::array kPlaces{"PATH", "CONFIG", "CHECKPOINT", "RUN", "DIR", "FILE"};
  return std::find(kPlaces.begin(), kPlaces.end(), word) != kPlaces.end();
}

OptionEntry entry_of(const CLI::Option& option) {
  OptionEntry entry;
  for (const std::string& name : option.get_snames()) {
    entry.names.push_back("-" + name);
  }
  for (const std::string& name : option.get_lnames()) {
    entry.names.push_back("--" + name);
  }
  const bool is_flag = option.get_items_expected_max() == 0;
  entry.value = is_flag ? "" : option.get_type_name();
  if (entry.names.empty()) {
    entry.names.push_back(option.get_single_name());
  }
  entry.help = option.get_description();
  entry.otherwise = is_flag ? "" : option.get_default_str();
  entry.is_required = option.get_required();
  entry.takes_keys = entry.value == "KEY=VALUE";
  // An argument by its place is called after what it is: CHECKPOINT|CONFIG.
  for (const std::string& word :
       alternatives_of(option.get_positional() ? entry.names.front() : "")) {
    entry.takes_files = entry.takes_files || is_place(word);
  }
  const std::vector<std::string> words = alternatives_of(entry.value);
  for (const std::string& word : words) {
    entry.takes_files = entry.takes_files || is_place(word);
    // "bash|zsh", but not "INTEGER,..".
    if (words.size() > 1 && !is_placeholder(word)) {
      entry.choices.push_back(word);
    }
  }
  return entry;
}

CommandEntry entry_of(const CLI::App& app, const std::string& words) {
  CommandEntry entry{.words = words, .help = app.get_description()};
  for (const CLI::Option* option : app.get_options()) {
    (option->get_positional() ? entry.arguments : entry.options).push_back(entry_of(*option));
  }
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; })) {
    entry.commands.push_back(
        entry_of(*command, words + (words.empty() ? "" : " ") + command->get_name()));
  }
  return entry;
}

}  // namespace

CommandEntry command_tree(const CLI::App& app) {
  return entry_of(app, "");
}

std::vector<CommandEntry> flattened(const CommandEntry& command) {
  std::vector<CommandEntry> all{command};
  for (const CommandEntry& inner : command.commands) {
    const std::vector<CommandEntry> below = flattened(inner);
    all.insert(all.end(), below.begin(), below.end());
  }
  return all;
}

}  // namespace transnormer::cli
