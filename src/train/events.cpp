#include "train/events.h"

#include <algorithm>
#include <utility>

#include "util/units.h"

namespace transnormer {

Events::Events(std::unique_ptr<log::EventSink> console,
               std::vector<std::unique_ptr<log::EventSink>> files)
    : console_(std::move(console)), files_(std::move(files)) {}

void Events::emit(const log::TrainEvent& event, bool show) {
  for (const auto& file : files_) {
    file->on(event);
  }
  if (show) {
    console_->on(event);
  }
  tell_of_gaps(event.step);
}

void Events::emit(const log::ValidEvent& event) {
  for (const auto& file : files_) {
    file->on(event);
  }
  console_->on(event);
  tell_of_gaps(event.step);
}

void Events::emit(const log::TextEvent& event) {
  for (const auto& file : files_) {
    file->on(event);
  }
  console_->on(event);
  tell_of_gaps(event.step);
}

void Events::note(std::int64_t step, const std::string& name, const std::string& message,
                  log::Level level) {
  emit(log::NoteEvent{.step = step, .name = name, .message = message, .level = level});
}

void Events::emit(const log::NoteEvent& event) {
  for (const auto& file : files_) {
    file->on(event);
  }
  console_->on(event);
  tell_of_gaps(event.step);
}

void Events::flush() {
  for (const auto& file : files_) {
    file->flush();
  }
}

std::vector<const log::EventSink*> Events::sinks() const {
  std::vector<const log::EventSink*> all{console_.get()};
  for (const auto& file : files_) {
    all.push_back(file.get());
  }
  return all;
}

void Events::tell_of_gaps(std::int64_t step) {
  for (const log::EventSink* sink : sinks()) {
    const log::LostRecords lost = sink->lost();
    if (lost.still_fails || lost.count == told_[sink]) {
      continue;
    }
    const std::int64_t gap = lost.count - std::exchange(told_[sink], lost.count);
    note(step, "log_gap",
         lost.file.string() + ": can be written again, " + format_count(gap) +
             (gap == 1 ? " record is" : " records are") + " missing",
         log::Level::warning);
  }
}

bool Events::have_lost_records() const {
  const std::vector<const log::EventSink*> all = sinks();
  return std::any_of(all.begin(), all.end(),
                     [](const log::EventSink* sink) { return sink->lost().count > 0; });
}

}  // namespace transnormer
