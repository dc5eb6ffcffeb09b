// stderr, shared by messages and progress bars: a message erases the bar, which is drawn anew
// below. Internal to src/log.
#pragma once

#include <string>
#include <string_view>

namespace transnormer::log {

[[nodiscard]] bool terminal_has_colours();
[[nodiscard]] int terminal_columns();  // 80 where the terminal does not tell

// Writes whole lines above the bar. Safe from any thread.
void write_above_bars(std::string_view lines);

// Shows this line as the bar of `owner`, in place of what it showed before. Bars nest: the one
// shown last stands in front, and the one before it comes back when it is erased. The line must not
// hold line ends and should fit into the terminal.
void show_bar(const void* owner, const std::string& line);
void erase_bar(const void* owner);

}  // namespace transnormer::log
