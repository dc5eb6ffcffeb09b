#include "log/console.h"

#include <fcntl.h>
#include <spdlog/logger.h>
#include <spdlog/pattern_formatter.h>
#include <spdlog/sinks/base_sink.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <memory>
#include <mutex>
#include <string_view>
#include <utility>

#include "log/terminal.h"
#include "util/error.h"

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

// train.log. Every line is one write to a file opened for appending.
class FileSink : public spdlog::sinks::base_sink<std::mutex> {
 public:
  explicit FileSink(std::filesystem::path path) : path_(std::move(path)) {
    descriptor_ = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    if (descriptor_ < 0) {
      throw WriteError(path_.string() + ": cannot be written: " + std::strerror(errno));
    }
  }
  ~FileSink() override {
    if (descriptor_ >= 0) {
      ::close(descriptor_);
    }
  }

 protected:
  void sink_it_(const spdlog::details::log_msg& message) override {
    if (descriptor_ < 0) {
      return;
    }
    spdlog::memory_buf_t formatted;
    formatter_->format(message, formatted);
    const ssize_t written = ::write(descriptor_, formatted.data(), formatted.size());
    if (written == static_cast<ssize_t>(formatted.size())) {
      return;
    }
    const std::string why = written < 0 ? std::strerror(errno) : "no space left";
    ::close(std::exchange(descriptor_, -1));
    write_above_bars("error: " + path_.string() + ": cannot be written: " + why +
                     "; the log goes on here only\n");
  }
  void flush_() override {}

 private:
  std::filesystem::path path_;
  int descriptor_ = -1;
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
