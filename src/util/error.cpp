#include "util/error.h"

#include <cerrno>
#include <cstring>
#include <utility>

namespace transnormer {
namespace {

std::string join_lines(const std::vector<std::string>& lines) {
  std::string joined;
  for (const std::string& line : lines) {
    if (!joined.empty()) {
      joined += '\n';
    }
    joined += line;
  }
  return joined;
}

}  // namespace

std::string system_reason(int error_number) {
  const std::string reason = std::strerror(error_number);
  switch (error_number) {
    case EFBIG:
      return reason + " (a limit of the file system, or of ulimit -f)";
    case EMFILE:
      return reason + " (the limit of ulimit -n)";
    case ENOMEM:
      return reason + " (perhaps the limit of ulimit -v)";
    default:
      return reason;
  }
}

UserError::UserError(std::vector<std::string> faults)
    : std::runtime_error(join_lines(faults)), faults_(std::move(faults)) {}

StoppedError::StoppedError(ExitStatus status)
    : std::runtime_error(std::string("stopped by ") +
                         (status == ExitStatus::interrupted ? "SIGINT" : "SIGTERM")),
      status_(status) {}

std::string first_line(const std::string& text) {
  return text.substr(0, text.find('\n'));
}

}  // namespace transnormer
