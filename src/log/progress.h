// A bar with time left, on a terminal; a plain line every so often elsewhere.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace transnormer::log {

class ProgressBar {
 public:
  // `total` in the unit of update(); `label` stands before the bar.
  ProgressBar(std::string label, std::int64_t total, std::int64_t start = 0, bool enabled = true);
  ~ProgressBar();
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;

  // Redraws at most ten times a second. `note` follows the bar ("loss 4.31  12.3k tokens/s").
  void update(std::int64_t done, const std::string& note = "");
  void finish();

 private:
  void draw();
  std::string label_;
  std::int64_t total_;
  std::int64_t start_;
  std::int64_t done_;
  bool enabled_;
  bool finished_ = false;
  std::string note_;
  std::chrono::steady_clock::time_point began_;
  std::chrono::steady_clock::time_point drawn_;
};

}  // namespace transnormer::log
