#include "train/events.h"

#include <utility>

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
}

void Events::emit(const log::ValidEvent& event) {
  for (const auto& file : files_) {
    file->on(event);
  }
  console_->on(event);
}

void Events::note(std::int64_t step, const std::string& name, const std::string& message,
                  log::Level level) {
  const log::NoteEvent event{.step = step, .name = name, .message = message, .level = level};
  for (const auto& file : files_) {
    file->on(event);
  }
  console_->on(event);
}

}  // namespace transnormer
