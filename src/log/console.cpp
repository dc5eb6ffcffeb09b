#include "log/console.h"

#include <spdlog/logger.h>
#include <spdlog/pattern_formatter.h>
#include <spdlog/sinks/base_sink.h>

#include <memory>
#include <mutex>
#include <string_view>

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

// train.log. Its own failure goes to stderr only: the logger is busy with the line that failed.
class FileSink : public spdlog::sinks::base_sink<std::mutex> {
 public:
  explicit FileSink(const std::filesystem::path& path)
      : file_(path, [](const std::string& why) { write_above_bars("error: " + why + '\n'); }) {}

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
  std::mutex mutex;  // guards `logger`'s list of sinks
  spdlog::logger logger{"transnormer"};

  Console() {
    const auto sink = std::make_shared<StderrSink>();
    sink->set_pattern("%T %^%l%$  %v");
    logger.sinks().push_back(sink);
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
  constexpr spdlog::level::level_enum kLevels[] = {spdlog::level::debug, spdlog::level::info,
                                                   spdlog::level::warn, spdlog::level::err};
  console().logger.set_level(kLevels[static_cast<std::size_t>(level)]);
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

void open_file(const std::filesystem::path& path) {
  close_file();
  const auto sink = std::make_shared<FileSink>(path);
  sink->set_pattern("%Y-%m-%d %T.%e %l  %v");
  const std::lock_guard lock(console().mutex);
  console().logger.sinks().push_back(sink);
}

void close_file() {
  const std::lock_guard lock(console().mutex);
  console().logger.sinks().resize(1);
}

}  // namespace transnormer::log
