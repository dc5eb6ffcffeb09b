// The command line as plain data, for what is made from it: completions and the manual.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace transnormer::cli {

struct OptionEntry {
  std::vector<std::string> names;  // "--json", "-h"; of an argument by place its one name
  std::string value;               // what stands behind it: "auto|cpu|cuda", "PATH"; empty: nothing
  std::string help;
  std::string otherwise;             // its value without it; may be empty
  std::vector<std::string> choices;  // of `value`
  bool takes_files = false;          // one of the alternatives in `value` is a place in a file tree
  bool takes_keys = false;           // a key of the config and its value
  bool is_required = false;
};

struct CommandEntry {
  std::string words;  // behind the program's name: "tokenizer train"; empty for the program
  std::string help;
  std::vector<OptionEntry> options = {};    // that begin with "-"
  std::vector<OptionEntry> arguments = {};  // by their place
  std::vector<CommandEntry> commands = {};
};

[[nodiscard]] CommandEntry command_tree(const CLI::App& app);

// A command and all below it, each before those inside it.
[[nodiscard]] std::vector<CommandEntry> flattened(const CommandEntry& command);

}  // namespace transnormer::cli
