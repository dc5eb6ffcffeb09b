#include "log/progress.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "log/console.h"
#include "log/terminal.h"
#include "util/units.h"

namespace transnormer::log {
namespace {

using Seconds = std::chrono::duration<double>;

constexpr int kWidestBar = 30;
constexpr int kNarrowestBar = 8;
constexpr Seconds kRedraw{0.1};
constexpr Seconds kLineEvery{30};
constexpr Seconds kLineAtMost{5};

double share_of(const ProgressState& state) {
  if (state.total <= 0) {
    return 0;
  }
  const double share = static_cast<double>(state.done) / static_cast<double>(state.total);
  return std::clamp(share, 0.0, 1.0);
}

std::string percentage(const ProgressState& state) {
  return std::to_string(static_cast<int>(std::floor(share_of(state) * 100))) + "%";
}

double rate_of(const ProgressState& state) {
  return state.elapsed_s > 0 ? static_cast<double>(state.done - state.start) / state.elapsed_s : 0;
}

std::string time_left(const ProgressState& state) {
  const double rate = rate_of(state);
  if (rate <= 0 || state.total <= 0) {
    return "";
  }
  const auto left = static_cast<double>(std::max<std::int64_t>(state.total - state.done, 0));
  return format_duration(left / rate) + " left";
}

// The first `columns` characters of UTF-8 text, each taken as one column wide.
std::string cropped(const std::string& text, int columns) {
  int characters = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const bool begins = (static_cast<unsigned char>(text[i]) & 0xC0) != 0x80;
    if (begins && ++characters > columns) {
      return text.substr(0, i);
    }
  }
  return text;
}

}  // namespace

std::string progress_bar_text(const ProgressState& state, int columns) {
  std::string after;
  const auto append = [&after](const std::string& part) {
    if (!part.empty()) {
      after += (after.empty() ? "" : "  ") + part;
    }
  };
  if (state.total > 0) {
    std::string padded = percentage(state);
    padded.insert(0, 4 - std::min<std::size_t>(padded.size(), 4), ' ');
    append(padded + " " + format_count(state.done) + "/" + format_count(state.total));
  } else {
    append(format_count(state.done));
  }
  append(format_short(rate_of(state)) + "/s");
  append(time_left(state));
  append(state.note);
  const int taken = static_cast<int>(state.label.size() + after.size()) + 4;
  const int width = std::min(kWidestBar, columns - taken);
  std::string bar = " ";
  if (state.total > 0 && width >= kNarrowestBar) {
    const int filled = static_cast<int>(share_of(state) * width);
    std::string cells = std::string(static_cast<std::size_t>(filled), '=') +
                        std::string(static_cast<std::size_t>(width - filled), ' ');
    if (filled < width) {
      cells[static_cast<std::size_t>(filled)] = '>';
    }
    bar = " [" + cells + "] ";
  }
  return cropped(state.label + bar + after, columns);
}

std::string progress_line_text(const ProgressState& state) {
  std::string line = state.label + ": ";
  if (state.total > 0) {
    line += percentage(state) + " (" + format_count(state.done) + " of " +
            format_count(state.total) + ")";
  } else {
    line += format_count(state.done);
  }
  line += ", " + format_short(rate_of(state)) + "/s";
  for (const std::string& part : {time_left(state), state.note}) {
    if (!part.empty()) {
      line += ", " + part;
    }
  }
  return line;
}

ProgressBar::ProgressBar(std::string label, std::int64_t total, std::int64_t start, bool enabled)
    : state_{std::move(label), start, total, start, 0, ""},
      enabled_(enabled),
      terminal_(draws_bars()),
      line_done_(start),
      began_(std::chrono::steady_clock::now()),
      drawn_(began_) {
  if (enabled_ && terminal_) {
    draw();
  }
}

ProgressBar::~ProgressBar() {
  finish();
}

void ProgressBar::update(std::int64_t done, const std::string& note) {
  if (!enabled_) {
    return;
  }
  const auto now = std::chrono::steady_clock::now();
  const Seconds since = now - drawn_;
  state_.done = done;
  state_.note = note;
  if (terminal_) {
    if (since >= kRedraw) {
      drawn_ = now;
      draw();
    }
    return;
  }
  const bool tenth = state_.total > 0 && (done - line_done_) * 10 >= state_.total;
  if (since >= kLineEvery || (tenth && since >= kLineAtMost)) {
    drawn_ = now;
    write_line();
  }
}

void ProgressBar::finish() {
  if (enabled_ && terminal_) {
    erase_bar(this);
  }
  enabled_ = false;
}

void ProgressBar::draw() {
  state_.elapsed_s = Seconds(std::chrono::steady_clock::now() - began_).count();
  // The last column stays free: writing into it makes some terminals wrap.
  show_bar(this, progress_bar_text(state_, terminal_columns() - 1));
}

void ProgressBar::write_line() {
  state_.elapsed_s = Seconds(std::chrono::steady_clock::now() - began_).count();
  line_done_ = state_.done;
  info(progress_line_text(state_));
}

}  // namespace transnormer::log
