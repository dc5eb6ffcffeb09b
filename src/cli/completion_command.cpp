// completion: a script for the user's shell.
#include <iostream>
#include <memory>

#include "cli/commands.h"
#include "cli/completion_script.h"
#include "cli/options.h"

namespace transnormer::cli {

void add_completion(CLI::App& app, Run& run) {
  CLI::App* command = app.add_subcommand(
      "completion", "A script that lets a shell complete commands, options and keys");
  auto shell = std::make_shared<Shell>();
  add_choice<Shell>(*command, "SHELL", kShellNames, *shell,
                    "bash: source <(transnormer completion bash); zsh: a file _transnormer in a "
                    "folder of $fpath")
      ->required();
  command->callback([shell, &app, &run] {
    run = [shell, &app] {
      std::cout << completion_script(*shell, command_tree(app));
      return ExitStatus::done;
    };
  });
}

}  // namespace transnormer::cli
