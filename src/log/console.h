// Messages for people, on stderr and in the run's train.log. Hides the logging library.
#pragma once

#include <filesystem>
#include <string>

#include "util/log_level.h"

namespace transnormer::log {

using Level = LogLevel;

void set_level(Level level);
void debug(const std::string& message);
void info(const std::string& message);
void warn(const std::string& message);
void error(const std::string& message);

// Also writes every message, with date and level, to this file (appended) until closed. A file that
// can no longer be written (full disk) is reported once and given up.
void open_file(const std::filesystem::path& path);
void close_file();

// True where stderr is a terminal; colours additionally need NO_COLOR to be unset.
[[nodiscard]] bool is_terminal();

}  // namespace transnormer::log
