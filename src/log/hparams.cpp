#include "log/hparams.h"

#include <string>
#include <system_error>
#include <utility>

#include "log/append_file.h"
#include "log/tensorboard_file.h"
#include "log/tensorboard_format.h"
#include "util/file.h"

namespace transnormer::log {
namespace {

void add_validation(SummaryBuilder& summary, const std::string& prefix, const ValidEvent& event) {
  summary.add_scalar(prefix + "loss", event.loss);
  for (const auto& [name, value] : event.figures) {
    summary.add_scalar(prefix + name, value);
  }
}

// What the file of the settings begins with.
std::string description(const HparamsOptions& options) {
  std::string bytes = tfrecord(version_event(wall_time()));
  SummaryBuilder start;
  start.add_hparams_start(options.settings, wall_time());
  bytes += tfrecord(summary_event(wall_time(), 0, start));
  if (options.best_so_far) {
    SummaryBuilder best;
    add_validation(best, "best_valid/", *options.best_so_far);
    bytes += tfrecord(summary_event(wall_time(), options.best_so_far->step, best));
  }
  return bytes;
}

// Comes before the sessions' files, whose names go on with a time.
std::filesystem::path settings_file(const std::filesystem::path& directory) {
  return directory / (std::string(kEventFilePrefix) + "0.settings");
}

AppendFile begin_settings_file(const std::filesystem::path& directory,
                               const HparamsOptions& options) {
  make_directories(directory);
  const std::string bytes = description(options);
  write_file_atomically(settings_file(directory), bytes);
  return AppendFile(settings_file(directory), {.still_ours = options.still_ours,
                                               .make_place =
                                                   [directory] {
                                                     std::error_code ignored;
                                                     std::filesystem::create_directory(directory,
                                                                                       ignored);
                                                   },
                                               .header = bytes});
}

class HparamsSink : public EventSink {
 public:
  HparamsSink(const std::filesystem::path& directory, HparamsOptions options)
      : settings_(begin_settings_file(directory, options)),
        results_(directory, options.first_step, std::move(options.still_ours)) {}

  void on(const TrainEvent&) override {}

  void on(const ValidEvent& event) override {
    SummaryBuilder summary;
    if (event.best) {
      add_validation(summary, "best_valid/", event);
    }
    add_validation(summary, "last_valid/", event);
    results_.append(event.step, summary);
  }

  void on(const NoteEvent& event) override {
    if (event.name != "done" && event.name != "failed" && event.name != "diverged") {
      return;
    }
    SummaryBuilder summary;
    summary.add_hparams_end(event.name == "done", wall_time());
    settings_.append(tfrecord(summary_event(wall_time(), 0, summary)));
  }

  void flush() override {
    settings_.flush();
    results_.flush();
  }

  [[nodiscard]] LostRecords lost() const override {
    LostRecords all = results_.lost();
    const LostRecords& of_settings = settings_.lost();
    if (of_settings.count > 0) {
      all.file = of_settings.file;
    }
    all.count += of_settings.count;
    all.still_fails = all.still_fails || of_settings.still_fails;
    return all;
  }

 private:
  AppendFile settings_;
  SessionFile results_;
};

}  // namespace

std::unique_ptr<EventSink> make_hparams_sink(const std::filesystem::path& directory,
                                             HparamsOptions options) {
  return std::make_unique<HparamsSink>(directory, std::move(options));
}

}  // namespace transnormer::log
