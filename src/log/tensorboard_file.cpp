#include "log/tensorboard_file.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

#include "util/file.h"

namespace transnormer::log {
namespace {

// TensorBoard reads the files in the order of their names, so a new one must come last, also when
// two sessions begin within a second or the clock was set back. Seconds have ten digits until the
// year 2286: a name with more is no session's, and would bring the new one before the others.
std::int64_t next_stamp(const std::filesystem::path& directory) {
  auto stamp = static_cast<std::int64_t>(wall_time());
  for (const auto& entry : std::filesystem::directory_iterator(directory)) {
    const std::string name = entry.path().filename().string();
    constexpr std::int64_t kLast = 9'999'999'999;
    std::int64_t earlier = 0;
    if (name.starts_with(kEventFilePrefix) &&
        std::from_chars(name.data() + kEventFilePrefix.size(), name.data() + name.size(), earlier)
                .ec == std::errc() &&
        earlier < kLast) {
      stamp = std::max(stamp, earlier + 1);
    }
  }
  return stamp;
}

std::filesystem::path new_event_file(const std::filesystem::path& directory) {
  make_directories(directory);
  std::array<char, 256> host{};
  if (::gethostname(host.data(), host.size() - 1) != 0) {
    host = {"localhost"};
  }
  return directory / (std::string(kEventFilePrefix) + std::to_string(next_stamp(directory)) + "." +
                      host.data() + "." + std::to_string(::getpid()));
}

}  // namespace

double wall_time() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration<double>(now).count();
}

SessionFile::SessionFile(const std::filesystem::path& directory, std::int64_t first_step,
                         StillOurs still_ours)
    : file_(new_event_file(directory), {.still_ours = std::move(still_ours),
                                        .make_place =
                                            [directory] {
                                              std::error_code ignored;
                                              std::filesystem::create_directory(directory, ignored);
                                            },
                                        .header = tfrecord(version_event(wall_time()))}) {
  file_.append(tfrecord(session_start_event(wall_time(), first_step + 1)));
}

void SessionFile::append(std::int64_t step, const SummaryBuilder& summary) {
  file_.append(tfrecord(summary_event(wall_time(), step, summary)));
}

}  // namespace transnormer::log
