// Events as TensorBoard's scalars and histograms.
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <cmath>
#include <string>
#include <system_error>
#include <utility>

#include "log/append_file.h"
#include "log/events.h"
#include "log/tensorboard_format.h"
#include "util/file.h"

namespace transnormer::log {
namespace {

constexpr std::string_view kPrefix = "events.out.tfevents.";

double wall_time() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration<double>(now).count();
}

// TensorBoard reads the files in the order of their names, so a new one must come last, also when
// two sessions begin within a second or the clock was set back. Seconds have ten digits until the
// year 2286: a name with more is no session's, and would bring the new one before the others.
std::int64_t next_stamp(const std::filesystem::path& directory) {
  auto stamp = static_cast<std::int64_t>(wall_time());
  for (const auto& entry : std::filesystem::directory_iterator(directory)) {
    const std::string name = entry.path().filename().string();
    constexpr std::int64_t kLast = 9'999'999'999;
    std::int64_t earlier = 0;
    if (name.starts_with(kPrefix) &&
        std::from_chars(name.data() + kPrefix.size(), name.data() + name.size(), earlier).ec ==
            std::errc() &&
        earlier < kLast) {
      stamp = std::max(stamp, earlier + 1);
    }
  }
  return stamp;
}

std::filesystem::path new_event_file(const std::filesystem::path& directory) {
  make_directories(directory);
  std::array<char, 256> host{};
  if (::gethostname(host.data(), host.size() - 1) != 0) {
    host = {"localhost"};
  }
  return directory / (std::string(kPrefix) + std::to_string(next_stamp(directory)) + "." +
                      host.data() + "." + std::to_string(::getpid()));
}

void add_figures(SummaryBuilder& summary, const std::string& prefix, const Figures& figures) {
  for (const auto& [name, value] : figures) {
    summary.add_scalar(prefix + name, value);
  }
}

class TensorboardSink : public EventSink {
 public:
  TensorboardSink(const std::filesystem::path& directory, std::int64_t first_step,
                  StillOurs still_ours)
      : file_(new_event_file(directory), {.still_ours = std::move(still_ours),
                                          .make_place =
                                              [directory] {  // its parent is never made
                                                std::error_code ignored;
                                                std::filesystem::create_directory(directory,
                                                                                  ignored);
                                              },
                                          .header = tfrecord(version_event(wall_time()))}) {
    file_.append(tfrecord(session_start_event(wall_time(), first_step + 1)));
  }

  void on(const TrainEvent& event) override {
    SummaryBuilder summary;
    summary.add_scalar("train/loss", event.loss);
    add_figures(summary, "train/", event.figures);
    summary.add_scalar("train/lr", event.lr);
    summary.add_scalar("train/grad_norm", event.grad_norm);
    summary.add_scalar("train/tokens_per_s", event.tokens_per_s);
    summary.add_scalar("train/data_wait_s", event.data_wait_s);
    if (event.ranks_wait_share) {
      summary.add_scalar("train/ranks_wait_share", *event.ranks_wait_share);
    }
    summary.add_scalar("train/memory_bytes", static_cast<double>(event.memory_bytes));
    if (event.loss_scale) {
      summary.add_scalar("train/loss_scale", *event.loss_scale);
    }
    summary.add_scalar("train/skipped_updates", static_cast<double>(event.skipped_updates));
    for (const auto& [group, stats] : event.gradients) {
      const std::string tag = "grad/" + group;
      summary.add_scalar(tag + "/norm", stats.norm);
      summary.add_scalar(tag + "/zero_share", stats.zero_share);
      summary.add_scalar(tag + "/mean", stats.mean);
      summary.add_scalar(tag + "/relative_std", stats.relative_std);
    }
    for (const auto& [group, values] : event.histograms) {
      summary.add_histogram("grad/" + group + "/histogram", values);
    }
    append(event.step, summary);
  }

  void on(const ValidEvent& event) override {
    SummaryBuilder summary;
    summary.add_scalar("valid/loss", event.loss);
    add_figures(summary, "valid/", event.figures);
    append(event.step, summary);
  }

  void on(const NoteEvent&) override {}  // metrics.jsonl and train.log keep these

  void flush() override { file_.flush(); }

  [[nodiscard]] LostRecords lost() const override { return file_.lost(); }

 private:
  void append(std::int64_t step, const SummaryBuilder& summary) {
    file_.append(tfrecord(summary_event(wall_time(), step, summary)));
  }

  AppendFile file_;
};

}  // namespace

std::unique_ptr<EventSink> make_tensorboard_sink(const std::filesystem::path& directory,
                                                 std::int64_t first_step, StillOurs still_ours) {
  return std::make_unique<TensorboardSink>(directory, first_step, std::move(still_ours));
}

}  // namespace transnormer::log
