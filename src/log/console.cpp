#include "log/console.h"

#include <spdlog/logger.h>
#include <spdlog/pattern_formatter.h>
#include <spdlog/sinks/base_sink.h>

#include <algorithm>
#include <memory>
#include <mutex>
#include <string_view>
#include <utility>

#include "log/append_file.h"
#include "log/terminal.h"

namespace transnormer::log {
namespace {

std::string_view colour_of(spdlog::level::level_enum level) {
  switch (level) {
    case spdlog::level::debug:
      return "\x1b[36m";
    case spdlog::level::warn:
      return "\x1b[33m";
    case spdlog::level::err:
      return "\x1b[31m";
    default:
      return "\x1b[32m";
  }
}

class StderrSink : public spdlog::sinks::base_sink<std::mutex> {
 protected:
  void sink_it_(const spdlog::details::log_msg& message) override {
    spdlog::memory_buf_t formatted;
    formatter_->format(message, formatted);
    std::string line(formatted.data(), formatted.size());
    if (terminal_has_colours() && message.color_range_end > message.color_range_start) {
      line.insert(message.color_range_end, "\x1b[0m");
      line.insert(message.color_range_start, colour_of(message.level));
    }
    write_above_bars(line);
  }
  void flush_() override {}
};

constexpr spdlog::level::level_enum of_library(Level level) {
  constexpr spdlog::level::level_enum kLevels[] = {spdlog::level::debug, spdlog::level::info,
                                                   spdlog::level::warn, spdlog::level::err};
  return kLevels[static_cast<std::size_t>(level)];
}

// train.log. Its own failure goes to stderr only: the logger is busy with the line that failed.
class FileSink : public spdlog::sinks::base_sink<std::mutex> {
 public:
  FileSink(const std::filesystem::path& path, StillOurs still_ours)
      : file_(path,
              {.report = [](const std::string& why) { write_above_bars("error: " + why + '\n'); },
               .still_ours = std::move(still_ours)}) {}

  [[nodiscard]] const LostRecords& lost() const { return file_.lost(); }

 protected:
  void sink_it_(const spdlog::details::log_msg& message) override {
    spdlog::memory_buf_t formatted;
    formatter_->format(message, formatted);
    file_.append({formatted.data(), formatted.size()});
  }
  void flush_() override {}

 private:
  AppendFile file_;
};

struct Console {
  std::mutex mutex;  // guards all of it
  spdlog::logger logger{"transnormer"};
  std::shared_ptr<StderrSink> terminal = std::make_shared<StderrSink>();
  std::shared_ptr<FileSink> file;  // may be absent

  Console() {
    terminal->set_pattern("%T %^%l%$  %v");
    logger.sinks().push_back(terminal);
    set_level(Level::info);
  }

  // A file is for looking things up later: it is not to be emptier than usual.
  void set_level(Level level) {
    terminal->set_level(of_library(level));
    logger.set_level(of_library(std::min(level, Level::info)));
  }

  void write(spdlog::level::level_enum level, const std::string& message) {
    const std::lock_guard lock(mutex);
    logger.log(level, spdlog::string_view_t(message.data(), message.size()));
  }
};

// Never destroyed, so that destructors of statics may still log.
Console& console() {
  static auto* instance = new Console;
  return *instance;
}

}  // namespace

void set_level(Level level) {
  const std::lock_guard lock(console().mutex);
  console().set_level(level);
}

void debug(const std::string& message) {
  console().write(spdlog::level::debug, message);
}
void info(const std::string& message) {
  console().write(spdlog::level::info, message);
}
void warn(const std::string& message) {
  console().write(spdlog::level::warn, message);
}
void error(const std::string& message) {
  console().write(spdlog::level::err, message);
}

void open_file(const std::filesystem::path& path, StillOurs still_ours) {
  close_file();
  const auto sink = std::make_shared<FileSink>(path, std::move(still_ours));
  sink->set_pattern("%Y-%m-%d %T.%e %l  %v");
  const std::lock_guard lock(console().mutex);
  console().file = sink;
  console().logger.sinks().push_back(sink);
}

void close_file() {
  const std::lock_guard lock(console().mutex);
  console().file.reset();
  console().logger.sinks().resize(1);
}

LostRecords lost_by_file() {
  const std::lock_guard lock(console().mutex);
  return console().file ? console().file->lost() : LostRecords{};
}

}  // namespace transnormer::log
