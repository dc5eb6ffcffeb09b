#include "task/task.h"

#include "util/error.h"

namespace transnormer {

Batch Task::part_of(const Batch& batch, int /*part*/, int parts) const {
  if (parts > 1) {
    throw UserError(
        "distributed.sequence_parallel: expected 1, since ranks cannot share the samples of this "
        "train.objective, got " +
        std::to_string(parts));
  }
  return batch;
}

Report Task::report(const Sums& sums) const {
  const auto count = static_cast<double>(sums.count);
  Report report{.loss = sums.loss / count};
  const std::vector<std::string> names = metrics();
  for (std::size_t i = 0; i < names.size(); ++i) {
    report.figures.emplace_back(names[i], sums.metrics[i] / count);
  }
  return report;
}

bool Task::is_better(const Report& first, const Report& second) const {
  return first.loss < second.loss;
}

}  // namespace transnormer
