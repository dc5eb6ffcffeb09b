// Training's events as lines for people.
#include <cmath>
#include <string>

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

class ConsoleSink : public EventSink {
 public:
  void on(const TrainEvent& event) override {
    std::string line = "step " + format_count(event.step) + "  " +
                       with_figures(event.loss, event.figures) + "  lr " +
                       format_significant(event.lr) + "  gradient " +
                       format_fixed(event.grad_norm, 3) + "  " + format_short(event.tokens_per_s) +
                       " tokens/s  " + format_bytes(static_cast<double>(event.memory_bytes));
    if (event.time_left_s) {
      line += "  " + format_duration(*event.time_left_s) + " left";
    }
    if (event.ranks_wait_share) {
      line += "  " + format_fixed(100 * *event.ranks_wait_share, 1) + " % waiting for ranks";
    }
    if (event.data_wait_s >= 0.1) {
      line += "  waited " + format_duration(event.data_wait_s) + " for data";
    }
    if (event.loss_scale) {
      line += "  loss scale " + format_short(*event.loss_scale);
    }
    if (event.skipped_updates > 0) {
      line += "  " + format_count(event.skipped_updates) + " skipped";
    }
    info(line);
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
};

}  // namespace

std::unique_ptr<EventSink> make_console_sink() {
  return std::make_unique<ConsoleSink>();
}

}  // namespace transnormer::log
