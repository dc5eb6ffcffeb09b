// One of TensorBoard's event files: that of a session. Internal to src/log.
#pragma once

#include <cstdint>
#include <filesystem>

#include "log/append_file.h"
#include "log/log_file.h"
#include "log/tensorboard_format.h"

namespace transnormer::log {

// How the name of every event file begins.
inline constexpr std::string_view kEventFilePrefix = "events.out.tfevents.";

[[nodiscard]] double wall_time();  // seconds since 1970

class SessionFile {
 public:
  // A new file, whose name comes behind those of the sessions before. Makes `directory`; later, if
  // it is removed, that again, but never its parent. Throws WriteError.
  SessionFile(const std::filesystem::path& directory, std::int64_t first_step,
              StillOurs still_ours);

  void append(std::int64_t step, const SummaryBuilder& summary);
  void flush() const { file_.flush(); }
  [[nodiscard]] const LostRecords& lost() const { return file_.lost(); }

 private:
  AppendFile file_;
};

}  // namespace transnormer::log
