// Batches of a task's samples in their order, made ahead.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "task/task.h"

namespace transnormer {

// The micro-batches of all updates from `first_update` on, made by a thread of its own a few
// updates ahead (one, where updates are large). Update s holds positions [s·G + p, (s+1)·G + p) of
// the order of samples (data/sample_order.h), G = global_batch_size, p = samples_passed_over, cut
// into equal shares and those into micro-batches, in order. Failures of the thread are thrown by
// next_update().
class BatchLoader {
 public:
  struct Options {
    std::int64_t global_batch_size = 1;
    std::int64_t micro_batch_size = 1;
    // Of so many that share out each update, this is the loader of one; shares must divide G.
    std::int64_t shares = 1;
    std::int64_t share = 0;
    // Of so many that share each sample, it is that of one part (Task::part_of).
    int parts = 1;
    int part = 0;
    std::uint64_t seed = 1;
    std::int64_t first_update = 0;
    std::int64_t samples_passed_over = 0;
    // Fills a short last micro-batch with masked rows, so that all have as many.
    bool equal_rows = false;
  };
  BatchLoader(std::shared_ptr<const Task> task, const Options& options);
  ~BatchLoader();

  // Bytes of all updates that are held at a time, the one in use too.
  [[nodiscard]] static double held_bytes(const Options& options, double bytes_per_sample);

  // All micro-batches of the next update.
  [[nodiscard]] std::vector<Batch> next_update();
  // Seconds that next_update() has waited, in all.
  [[nodiscard]] double waited_seconds() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace transnormer
