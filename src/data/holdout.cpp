#include "data/holdout.h"

#include <algorithm>
#include <charconv>

#include "util/philox.h"

namespace transnormer {
namespace {

constexpr std::int64_t kPartOfBefore = 256;
constexpr std::int64_t kLongestRun = 65536;

float uniform(std::uint64_t number) {
  constexpr std::uint64_t kDomain = 0x686F6C646F7574;  // "holdout"
  return philox_uniform(philox4x32(
      philox_key(kDomain),
      {static_cast<std::uint32_t>(number), static_cast<std::uint32_t>(number >> 32), 0, 0})[0]);
}

}  // namespace

std::string Holdout::share_text() const {
  char digits[32];
  const auto [end, error] = std::to_chars(std::begin(digits), std::end(digits), share);
  return {digits, end};
}

std::string Holdout::name() const {
  return splits() ? (is_held_out ? "held out " : "all but ") + share_text() : "";
}

// What is due lies above -1 and below 1 after each draw: from 1 on a run is taken for sure, and
// none while nothing is due.
void HoldoutRuns::begin_run() {
  position_ += run_bytes_;
  run_bytes_ = 0;
  least_bytes_ = std::clamp<std::int64_t>(position_ / kPartOfBefore, 1, kLongestRun);
  due_ += wanted_.share;
  is_held_out_ = static_cast<double>(uniform(runs_++)) < due_;
  due_ -= is_held_out_ ? 1 : 0;
}

void HoldoutRuns::split(std::string_view lines,
                        const std::function<void(std::string_view, bool)>& take) {
  while (!lines.empty()) {
    if (at_line_start_ && run_bytes_ >= least_bytes_) {
      begin_run();
    }
    // The first line end at which the run is long enough; else all lines belong to it.
    const auto least =
        static_cast<std::size_t>(std::max<std::int64_t>(least_bytes_ - run_bytes_, 1));
    const std::size_t end =
        least > lines.size() ? std::string_view::npos : lines.find('\n', least - 1);
    const std::string_view piece = lines.substr(0, end == std::string_view::npos ? end : end + 1);
    take(piece, is_held_out_ == wanted_.is_held_out);
    run_bytes_ += std::ssize(piece);
    at_line_start_ = piece.ends_with('\n');
    lines.remove_prefix(piece.size());
  }
}

}  // namespace transnormer
