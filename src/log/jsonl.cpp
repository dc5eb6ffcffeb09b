// metrics.jsonl: what scripts read.
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "log/append_file.h"
#include "log/events.h"
#include "util/file.h"
#include "util/foreign_json.h"

namespace transnormer::log {
namespace {

// Keeps the keys in the order they are set; writes what is not finite as null.
using Json = nlohmann::ordered_json;

Json gradients_to_json(const std::map<std::string, GradientStats>& gradients) {
  Json groups = Json::object();
  for (const auto& [group, stats] : gradients) {
    groups[group] = {{"norm", stats.norm},
                     {"zero_share", stats.zero_share},
                     {"mean", stats.mean},
                     {"relative_std", stats.relative_std}};
  }
  return groups;
}

void add_figures(Json& line, const Figures& figures) {
  for (const auto& [name, value] : figures) {
    line[name] = value;
  }
}

class JsonlSink : public EventSink {
 public:
  JsonlSink(const std::filesystem::path& path, StillOurs still_ours)
      : file_(path, {.still_ours = std::move(still_ours)}) {}

  void on(const TrainEvent& event) override {
    Json line = {
        {"kind", "train"}, {"step", event.step}, {"tokens", event.tokens}, {"loss", event.loss}};
    add_figures(line, event.figures);
    line.update({{"lr", event.lr},
                 {"grad_norm", event.grad_norm},
                 {"tokens_per_s", event.tokens_per_s},
                 {"elapsed_s", event.elapsed_s},
                 {"epoch", event.epoch},
                 {"data_wait_s", event.data_wait_s},
                 {"memory_bytes", event.memory_bytes}});
    if (event.ranks_wait_share) {
      line["ranks_wait_share"] = *event.ranks_wait_share;
    }
    if (event.loss_scale) {
      line["loss_scale"] = *event.loss_scale;
    }
    line["skipped_updates"] = event.skipped_updates;
    if (!event.gradients.empty()) {
      line["gradients"] = gradients_to_json(event.gradients);
    }
    append(line);
  }

  void on(const ValidEvent& event) override {
    Json line = {
        {"kind", "valid"}, {"step", event.step}, {"tokens", event.tokens}, {"loss", event.loss}};
    add_figures(line, event.figures);
    line.update({{"elapsed_s", event.elapsed_s}, {"seconds", event.seconds}, {"best", event.best}});
    append(line);
  }

  void on(const NoteEvent& event) override {
    Json line = {
        {"kind", "event"}, {"step", event.step}, {"event", event.name}, {"message", event.message}};
    for (const auto& [name, text] : event.texts) {
      line[name] = text;
    }
    append(line);
  }

  void flush() override { file_.flush(); }

  [[nodiscard]] LostRecords lost() const override { return file_.lost(); }

 private:
  // Messages may hold any bytes (file names); what is no UTF-8 is replaced.
  void append(const Json& line) {
    file_.append(line.dump(-1, ' ', false, Json::error_handler_t::replace) + '\n');
  }

  AppendFile file_;
};

// Torn lines are not kept, wherever a full disk or a crash left them.
bool is_kept(std::string_view line, std::int64_t last_step) {
  const auto parsed = parse_foreign_json(line);
  if (!parsed.is_object()) {
    return false;
  }
  const auto step = parsed.find("step");
  if (step == parsed.end() || !step->is_number()) {
    return true;
  }
  const std::optional<std::int64_t> whole = json_integer(*step);
  return whole ? *whole <= last_step : step->get<double>() <= static_cast<double>(last_step);
}

}  // namespace

std::unique_ptr<EventSink> make_jsonl_sink(const std::filesystem::path& path,
                                           StillOurs still_ours) {
  return std::make_unique<JsonlSink>(path, std::move(still_ours));
}

std::int64_t cut_metrics_after(const std::filesystem::path& path, std::int64_t step) {
  if (!std::filesystem::exists(path)) {
    return 0;
  }
  const std::string before = read_file(path, std::numeric_limits<std::int64_t>::max());
  std::string_view rest = before;
  std::string kept;
  std::int64_t removed = 0;
  while (!rest.empty()) {
    const std::size_t end = rest.find('\n');
    const std::string_view line = rest.substr(0, end);
    const bool whole = end != std::string_view::npos;
    if (whole && is_kept(line, step)) {
      kept.append(line).append("\n");
    } else {
      ++removed;
    }
    rest.remove_prefix(whole ? end + 1 : rest.size());
  }
  if (removed > 0) {
    write_file_atomically(path, kept);
  }
  return removed;
}

}  // namespace transnormer::log
