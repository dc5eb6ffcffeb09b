// Hands each event to every sink of the run.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "log/events.h"

namespace transnormer {

class Events {
 public:
  // `console` shows people what `files` keep.
  Events(std::unique_ptr<log::EventSink> console,
         std::vector<std::unique_ptr<log::EventSink>> files);

  // Not every train event is for people: one that only carries statistics may stay in the files.
  // The loss of each is the mean since the train event before it, shown or not.
  void emit(const log::TrainEvent& event, bool show);
  void emit(const log::ValidEvent& event);
  void emit(const log::TextEvent& event);
  // As every event, also tells of what a file lost before, once it can be written again.
  void emit(const log::NoteEvent& event);
  void note(std::int64_t step, const std::string& name, const std::string& message,
            log::Level level = log::Level::info);

  // What was reported before is on the disk when this returns. Another thread may call this while
  // events come. Throws WriteError.
  void flush();

  // Whether any file has lost a record.
  [[nodiscard]] bool have_lost_records() const;

 private:
  [[nodiscard]] std::vector<const log::EventSink*> sinks() const;
  void tell_of_gaps(std::int64_t step);

  std::unique_ptr<log::EventSink> console_;
  std::vector<std::unique_ptr<log::EventSink>> files_;
  std::map<const log::EventSink*, std::int64_t> told_;  // losses, by sink
};

}  // namespace transnormer
