// What training reports, and where it goes: one struct an event, one sink a format.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "log/console.h"
#include "log/log_file.h"

namespace transnormer::log {

// Gradients before clipping, of one group of parameters ("all", "layers.0.q_proj", .., "layers.0").
struct GradientStats {
  double norm = 0;
  double zero_share = 0;    // of the elements that are exactly zero
  double mean = 0;          // running mean over the iterations of the group's gradient norm
  double relative_std = 0;  // running standard deviation / mean, over the iterations (Table 2)
};

// Figures by name, in the order in which they are shown: "perplexity".
using Figures = std::vector<std::pair<std::string, double>>;

struct TrainEvent {
  std::int64_t step = 0;
  std::int64_t tokens = 0;  // target tokens seen so far, in all
  // Nats a token, mean since the last event; one of a run's last step that is due for no other
  // reason does not count as such.
  double loss = 0;
  Figures figures;  // beside the loss, of the same samples
  double lr = 0;
  double grad_norm = 0;  // before clipping
  double tokens_per_s = 0;
  double elapsed_s = 0;  // over all sessions of the run
  double epoch = 0;
  std::optional<double> time_left_s;       // to the end of training, for people
  double data_wait_s = 0;                  // since the last event
  std::optional<double> ranks_wait_share;  // of the updates' time, for other ranks; with several
  std::int64_t memory_bytes = 0;
  std::optional<double> loss_scale;                       // fp16 only
  std::int64_t skipped_updates = 0;                       // in all
  std::map<std::string, GradientStats> gradients;         // empty unless due
  std::map<std::string, std::vector<double>> histograms;  // gradient samples by group, unless due
};

struct ValidEvent {
  std::int64_t step = 0;
  std::int64_t tokens = 0;
  double loss = 0;  // nats a token
  Figures figures;
  double elapsed_s = 0;
  double seconds = 0;  // that validation took
  bool best = false;
};

// Anything else worth keeping: started, resumed, saved, save failed, skipped, log gap, done.
struct NoteEvent {
  std::int64_t step = 0;
  std::string name;     // snake_case, for scripts
  std::string message;  // for people
  Level level = Level::info;
  std::vector<std::pair<std::string, std::string>> texts = {};  // further ones by name, for scripts
};

// Text to be kept beside the figures, for people: a continued prompt, the config.
struct TextEvent {
  std::int64_t step = 0;
  std::string name;  // where TensorBoard shows it: "samples/1", "config"
  std::string markdown;
};

class EventSink {
 public:
  virtual ~EventSink() = default;
  virtual void on(const TrainEvent& event) = 0;
  virtual void on(const ValidEvent& event) = 0;
  virtual void on(const NoteEvent& event) = 0;
  // Not every file has a place for it.
  virtual void on(const TextEvent&) {}
  // What it was told before is on the disk when this returns, as far as its file keeps it. Another
  // thread may call this while events come. Throws WriteError.
  virtual void flush() {}
  // What its file has lost so far; nothing where it has none.
  [[nodiscard]] virtual LostRecords lost() const { return {}; }
};

// metrics.jsonl: one object a line, kinds "train", "valid", "event", appended to what is there.
// Only opening it throws WriteError; a record that cannot be written later is lost, which is told
// once, and the next one is tried again. The same goes for TensorBoard's files.
[[nodiscard]] std::unique_ptr<EventSink> make_jsonl_sink(const std::filesystem::path& path,
                                                         StillOurs still_ours = {});

// Removes the lines of steps after `step` (train and valid lines, and events), and what is torn or
// no JSON object. Returns how many were removed.
std::int64_t cut_metrics_after(const std::filesystem::path& path, std::int64_t step);

// A new TensorBoard event file in `directory`. `first_step`: the updates made before this session;
// its session-start mark makes TensorBoard drop the points after that step in the files before.
[[nodiscard]] std::unique_ptr<EventSink> make_tensorboard_sink(
    const std::filesystem::path& directory, std::int64_t first_step, StillOurs still_ours = {});

// Lines for people through log::info; what the file of those has lost is what this one has.
[[nodiscard]] std::unique_ptr<EventSink> make_console_sink();

}  // namespace transnormer::log
