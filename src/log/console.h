// Messages for people, on stderr and in the run's train.log. Hides the logging library.
#pragma once

#include <filesystem>
#include <string>

#include "log/log_file.h"
#include "util/log_level.h"

namespace transnormer::log {

using Level = LogLevel;

// Of what is shown on stderr.
void set_level(Level level);
// From here on nothing is shown on stderr, bars neither: another process speaks for this one.
void show_nothing();
void debug(const std::string& message);
void info(const std::string& message);
void warn(const std::string& message);
void error(const std::string& message);

// Also writes every message, with date and level, to this file (appended) until closed: from the
// level `info` on, or from that of stderr where that is less. Throws WriteError where it cannot be
// opened. A message that cannot be written later (full disk) is lost, which is told once, and the
// next one is tried again. `still_ours` is asked until the file is closed.
void open_file(const std::filesystem::path& path, StillOurs still_ours = {});
void close_file();
// What the open file has lost so far.
[[nodiscard]] LostRecords lost_by_file();

// True where stderr is a terminal that can do more than print (TERM is not "dumb"); colours
// additionally need NO_COLOR to be unset.
[[nodiscard]] bool draws_bars();

}  // namespace transnormer::log
