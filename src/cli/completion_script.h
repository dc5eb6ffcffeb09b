// Scripts that let a shell complete the program's command line.
#pragma once

#include <array>
#include <string>

#include "cli/command_tree.h"
#include "config/names.h"

namespace transnormer::cli {

enum class Shell { bash, zsh };
inline constexpr std::array kShellNames{Named{Shell::bash, "bash"}, Named{Shell::zsh, "zsh"}};

// Commands, options, the choices of those that have some, files, and for --set the keys of the
// config and their choices. The script asks the program nothing.
[[nodiscard]] std::string completion_script(Shell shell, const CommandEntry& program);

}  // namespace transnormer::cli
