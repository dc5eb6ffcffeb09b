// Training's events as lines for people.
#include <array>
#include <cmath>
#include <string>
#include <vector>

#include "log/console.h"
#include "log/events.h"
#include "util/units.h"

namespace transnormer::log {
namespace {

std::string with_figures(double loss, const Figures& figures) {
  std::string text = "loss " + format_fixed(loss, 4);
  for (const auto& [name, value] : figures) {
    text += "  " + name + " ";
    const int digits = name.ends_with("loss") ? 4 : 2;
    text += std::abs(value) >= 1e6 ? format_short(value) : format_fixed(value, digits);
  }
  return text;
}

// Parts with two spaces between them, in as many lines as it takes: with time and level before it
// none is wider than 100 columns.
std::vector<std::string> lines_of(const std::vector<std::string>& parts) {
  constexpr std::size_t kWidest = 85;
  std::vector<std::string> lines;
  for (const std::string& part : parts) {
    if (lines.empty() || lines.back().size() + 2 + part.size() > kWidest) {
      lines.push_back((lines.empty() ? "" : "  ") + part);
    } else {
      lines.back() += "  " + part;
    }
  }
  return lines;
}

// Three digits: 8.32, 94.9, 157, 13.5k.
std::string three_digits(double value) {
  constexpr std::array kUnits{"", "k", "M", "G", "T"};
  std::size_t unit = 0;
  while (value >= 999.5 && unit + 1 < kUnits.size()) {
    value /= 1000;
    ++unit;
  }
  return format_fixed(value, value < 9.995 ? 2 : value < 99.95 ? 1 : 0) + kUnits[unit];
}

// As short as they can be read.
std::vector<std::string> parts_of(const TrainEvent& event) {
  std::vector<std::string> parts{"step " + format_count(event.step),
                                 "loss " + format_fixed(event.loss, 4)};
  for (const auto& [name, value] : event.figures) {
    parts.push_back((name == "perplexity" ? "ppl" : name) + " " + three_digits(value));
  }
  parts.push_back("lr " + format_significant(event.lr));
  parts.push_back("grad " + format_significant(event.grad_norm));
  parts.push_back(three_digits(event.tokens_per_s) + " tok/s");
  if (event.time_left_s) {
    parts.push_back(format_duration(*event.time_left_s) + " left");
  }
  if (event.ranks_wait_share) {
    parts.push_back(format_fixed(100 * *event.ranks_wait_share, 1) + " % waiting for ranks");
  }
  if (event.data_wait_s >= 0.1) {
    parts.push_back("waited " + format_duration(event.data_wait_s) + " for data");
  }
  if (event.loss_scale) {
    parts.push_back("loss scale " + format_short(*event.loss_scale));
  }
  if (event.skipped_updates > 0) {
    parts.push_back(format_count(event.skipped_updates) + " skipped");
  }
  return parts;
}

class ConsoleSink : public EventSink {
 public:
  void on(const TrainEvent& event) override {
    for (const std::string& line : lines_of(parts_of(event))) {
      info(line);
    }
    tell_memory(event.memory_bytes);
  }

  void on(const ValidEvent& event) override {
    info("step " + format_count(event.step) + "  validation " +
         with_figures(event.loss, event.figures) + (event.best ? "  (best so far, " : "  (") +
         format_duration(event.seconds) + ")");
  }

  void on(const NoteEvent& event) override {
    switch (event.level) {
      case Level::debug:
        return debug(event.message);
      case Level::info:
        return info(event.message);
      case Level::warning:
        return warn(event.message);
      case Level::error:
        return error(event.message);
    }
  }

  [[nodiscard]] LostRecords lost() const override { return lost_by_file(); }

 private:
  // It changes seldom: at first, and where it has grown by a tenth.
  void tell_memory(std::int64_t bytes) {
    if (bytes > told_bytes_ + told_bytes_ / 10) {
      told_bytes_ = bytes;
      info("memory: " + format_bytes(static_cast<double>(bytes)));
    }
  }

  std::int64_t told_bytes_ = 0;
};

}  // namespace

std::unique_ptr<EventSink> make_console_sink() {
  return std::make_unique<ConsoleSink>();
}

}  // namespace transnormer::log
