#include "log/terminal.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <mutex>
#include <utility>
#include <vector>

#include "log/console.h"

namespace transnormer::log {
namespace {

constexpr std::string_view kEraseLine = "\r\x1b[K";

struct Terminal {
  std::mutex mutex;
  bool is_silent = false;
  std::vector<std::pair<const void*, std::string>> bars;  // the last one is shown

  // One write for everything, so that other processes' output cannot come between. What stderr
  // does not take (a closed pipe) is lost: there is nobody left to tell.
  void write(std::string_view text) {
    while (!text.empty() && !is_silent) {
      const ssize_t written = ::write(STDERR_FILENO, text.data(), text.size());
      if (written < 0 && errno == EINTR) {
        continue;
      }
      if (written <= 0) {
        return;
      }
      text.remove_prefix(static_cast<std::size_t>(written));
    }
  }

  [[nodiscard]] auto find(const void* owner) {
    return std::find_if(bars.begin(), bars.end(),
                        [owner](const auto& bar) { return bar.first == owner; });
  }
};

// Never destroyed: bars and messages may outlive static destruction.
Terminal& terminal() {
  static auto* instance = new Terminal;
  return *instance;
}

}  // namespace

void show_nothing() {
  const std::lock_guard lock(terminal().mutex);
  terminal().is_silent = true;
}

bool draws_bars() {
  const char* term = std::getenv("TERM");
  const bool unable = term != nullptr && std::string_view(term) == "dumb";
  return ::isatty(STDERR_FILENO) == 1 && !unable;
}

bool terminal_has_colours() {
  const char* no_color = std::getenv("NO_COLOR");
  const bool unwanted = no_color != nullptr && *no_color != '\0';
  return draws_bars() && !unwanted;
}

int terminal_columns() {
  struct winsize size {};
  if (::ioctl(STDERR_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) {
    return 80;
  }
  return size.ws_col;
}

void write_above_bars(std::string_view lines) {
  Terminal& shared = terminal();
  const std::lock_guard lock(shared.mutex);
  if (shared.bars.empty()) {
    shared.write(lines);
    return;
  }
  std::string text(kEraseLine);
  text += lines;
  text += shared.bars.back().second;
  shared.write(text);
}

void show_bar(const void* owner, const std::string& line) {
  Terminal& shared = terminal();
  const std::lock_guard lock(shared.mutex);
  const auto bar = shared.find(owner);
  if (bar == shared.bars.end()) {
    shared.bars.emplace_back(owner, line);
  } else {
    bar->second = line;
  }
  if (shared.bars.back().first == owner) {
    shared.write(std::string(kEraseLine) + line);
  }
}

void erase_bar(const void* owner) {
  Terminal& shared = terminal();
  const std::lock_guard lock(shared.mutex);
  const auto bar = shared.find(owner);
  if (bar == shared.bars.end()) {
    return;
  }
  shared.bars.erase(bar);
  shared.write(std::string(kEraseLine) + (shared.bars.empty() ? "" : shared.bars.back().second));
}

}  // namespace transnormer::log
