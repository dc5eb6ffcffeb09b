// Events as TensorBoard's scalars, histograms and texts.
#include <string>
#include <utility>

#include "log/events.h"
#include "log/tensorboard_file.h"
#include "log/tensorboard_format.h"

namespace transnormer::log {
namespace {

void add_figures(SummaryBuilder& summary, const std::string& prefix, const Figures& figures) {
  for (const auto& [name, value] : figures) {
    summary.add_scalar(prefix + name, value);
  }
}

class TensorboardSink : public EventSink {
 public:
  TensorboardSink(const std::filesystem::path& directory, std::int64_t first_step,
                  StillOurs still_ours)
      : file_(directory, first_step, std::move(still_ours)) {}

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
    file_.append(event.step, summary);
  }

  void on(const ValidEvent& event) override {
    SummaryBuilder summary;
    summary.add_scalar("valid/loss", event.loss);
    add_figures(summary, "valid/", event.figures);
    file_.append(event.step, summary);
  }

  void on(const TextEvent& event) override {
    SummaryBuilder summary;
    summary.add_text(event.name, event.markdown);
    file_.append(event.step, summary);
  }

  void on(const NoteEvent&) override {}  // metrics.jsonl and train.log keep these

  void flush() override { file_.flush(); }

  [[nodiscard]] LostRecords lost() const override { return file_.lost(); }

 private:
  SessionFile file_;
};

}  // namespace

std::unique_ptr<EventSink> make_tensorboard_sink(const std::filesystem::path& directory,
                                                 std::int64_t first_step, StillOurs still_ours) {
  return std::make_unique<TensorboardSink>(directory, first_step, std::move(still_ours));
}

}  // namespace transnormer::log
