#include "util/error.h"

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

UserError::UserError(std::vector<std::string> faults)
    : std::runtime_error(join_lines(faults)), faults_(std::move(faults)) {}

StoppedError::StoppedError(ExitStatus status)
    : std::runtime_error(std::string("stopped by ") +
                         (status == ExitStatus::interrupted ? "SIGINT" : "SIGTERM")),
      status_(status) {}

}  // namespace transnormer
