// metrics.jsonl that a resume cuts off behind a step.
#include <algorithm>
#include <cstdint>
#include <string>

#include "fuzz/fuzzer.h"
#include "log/events.h"

namespace fuzz = transnormer::fuzz;

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  constexpr std::int64_t kStep = 100;
  const std::string_view before = fuzz::bytes_of(data, size);
  const auto file = fuzz::put("metrics.jsonl", before);
  const std::int64_t removed = transnormer::log::cut_metrics_after(file, kStep);
  const std::string after = fuzz::contents(file);
  const auto lines = [](std::string_view text) {
    const bool is_torn = !text.empty() && !text.ends_with('\n');
    return std::ranges::count(text, '\n') + (is_torn ? 1 : 0);
  };
  fuzz::require(lines(before) - removed == lines(after), "lines are removed or kept");
  fuzz::require(removed > 0 || after == before, "what is kept is not changed");
  fuzz::require(transnormer::log::cut_metrics_after(file, kStep) == 0, "what was cut is cut");
  return 0;
}
