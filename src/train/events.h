// Hands each event to every sink of the run.
#pragma once

#include <cstdint>
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
  void note(std::int64_t step, const std::string& name, const std::string& message,
            log::Level level = log::Level::info);

 private:
  std::unique_ptr<log::EventSink> console_;
  std::vector<std::unique_ptr<log::EventSink>> files_;
};

}  // namespace transnormer
