// `~` in paths that no shell has seen: those of config files, of --set, of quoted options.
#pragma once

#include <string>

namespace transnormer {

// True for "~" and "~/x". "~user" is left alone, and a file of that name is "./~".
[[nodiscard]] bool starts_at_home(const std::string& path);

// $HOME, else what the system's list of users says of this one; empty where neither tells.
[[nodiscard]] std::string home_directory();

// A path that starts at home with the directory in place of '~', any other as it is. Throws
// UserError where no home directory is known.
[[nodiscard]] std::string expand_home(const std::string& path);

}  // namespace transnormer
