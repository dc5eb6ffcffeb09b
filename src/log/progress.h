// A bar with time left, on a terminal that can draw one; a plain line every so often elsewhere.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace transnormer::log {

// What a bar shows.
struct ProgressState {
  std::string label;
  std::int64_t done = 0;
  std::int64_t total = 0;  // 0: not known
  std::int64_t start = 0;  // done before the clock began
  double elapsed_s = 0;    // since then
  std::string note;
};

// "train [=====>    ]  52% 520/1000  12.3/s  39.0s left  loss 4.31", no wider than `columns`.
[[nodiscard]] std::string progress_bar_text(const ProgressState& state, int columns);
// "train: 52% (520 of 1,000), 12.3/s, 39.0s left, loss 4.31".
[[nodiscard]] std::string progress_line_text(const ProgressState& state);

class ProgressBar {
 public:
  // `total` in the unit of update(); `label` stands before the bar. `start` is what was done before
  // (a resumed run), which the rate does not count.
  ProgressBar(std::string label, std::int64_t total, std::int64_t start = 0, bool enabled = true);
  ~ProgressBar();
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;

  // Redraws at most ten times a second; writes a plain line every 30 seconds, or every tenth of the
  // whole if that takes 5 seconds or more. `note` follows the bar ("loss 4.31  12.3k tokens/s").
  // Not for several threads at once.
  void update(std::int64_t done, const std::string& note = "");
  // Erases the bar; what was reached is for a message to say.
  void finish();

 private:
  void draw();
  void write_line();

  ProgressState state_;
  bool enabled_;
  bool terminal_;
  std::int64_t line_done_;  // at the last plain line
  std::chrono::steady_clock::time_point began_;
  std::chrono::steady_clock::time_point drawn_;
};

}  // namespace transnormer::log
