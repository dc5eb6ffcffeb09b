#include "task/batch_loader.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <thread>
#include <utility>

#include "data/sample_order.h"
#include "ops/runtime/out_of_memory.h"
#include "util/error.h"
#include "util/units.h"

namespace transnormer {
namespace {

// Samples of an update.
std::int64_t share_of(const BatchLoader::Options& options) {
  return options.global_batch_size / options.shares;
}

std::int64_t micro_batches(const BatchLoader::Options& options) {
  return (share_of(options) + options.micro_batch_size - 1) / options.micro_batch_size;
}

double bytes_of_update(const BatchLoader::Options& options, double bytes_per_sample) {
  constexpr double kOverhead = sizeof(Batch) + 64;  // with what the allocator adds
  const std::int64_t rows =
      options.equal_rows ? micro_batches(options) * options.micro_batch_size : share_of(options);
  return static_cast<double>(rows) * bytes_per_sample +
         kOverhead * static_cast<double>(micro_batches(options));
}

// How many updates are made or held ready while one is in use.
std::size_t updates_ahead(const BatchLoader::Options& options, double bytes_per_sample) {
  constexpr double kBytes = 256 << 20;  // of all that are ahead, where one does not take more
  constexpr double kMost = 4;
  return static_cast<std::size_t>(
      std::clamp(kBytes / bytes_of_update(options, bytes_per_sample), 1.0, kMost));
}

}  // namespace

struct BatchLoader::State {
  State(std::shared_ptr<const Task> from, const Options& how)
      : task(std::move(from)),
        options(how),
        ahead(updates_ahead(how, task->bytes_per_sample())),
        order(task->samples(), how.seed) {}

  // The thread: keeps `ready` filled until it is stopped or fails.
  void run() {
    try {
      for (std::int64_t update = options.first_update; wait_for_room(); ++update) {
        std::vector<Batch> batches = make_update(update);
        const std::lock_guard lock(mutex);
        ready.push_back(std::move(batches));
        has_batches.notify_one();
      }
    } catch (const std::exception& error) {
      fail(ops::is_out_of_memory(error)
               ? std::make_exception_ptr(UserError(
                     "train.global_batch_size: no memory for the " +
                     format_count(options.global_batch_size) + " samples of an update, " +
                     format_count(task->sample_length()) + " tokens each; set a smaller one"))
               : std::current_exception());
    }
  }

  // False once it is stopped.
  bool wait_for_room() {
    std::unique_lock lock(mutex);
    has_room.wait(lock, [this] { return stopped || ready.size() < ahead; });
    return !stopped;
  }

  // Given up, and of no use, once it is stopped.
  std::vector<Batch> make_update(std::int64_t update) {
    std::vector<Batch> batches;
    batches.reserve(static_cast<std::size_t>(micro_batches(options)));
    const std::int64_t share = share_of(options);
    const std::int64_t begin =
        update * options.global_batch_size + options.samples_passed_over + options.share * share;
    const std::int64_t end = begin + share;
    for (std::int64_t position = begin; position < end && !stopped;) {
      const std::int64_t first = position;
      std::vector<std::int64_t> numbers;
      numbers.reserve(static_cast<std::size_t>(std::min(end - first, options.micro_batch_size)));
      for (; position < std::min(end, first + options.micro_batch_size); ++position) {
        numbers.push_back(order.sample_at(position));
      }
      const std::int64_t rows = options.equal_rows ? options.micro_batch_size : std::ssize(numbers);
      const Batch whole = task->make_batch(numbers, first, rows);
      batches.push_back(options.parts == 1 ? whole
                                           : task->part_of(whole, options.part, options.parts));
    }
    return batches;
  }

  void fail(std::exception_ptr reason) {
    const std::lock_guard lock(mutex);
    failure = std::move(reason);
    has_batches.notify_one();
  }

  const std::shared_ptr<const Task> task;
  const Options options;
  const std::size_t ahead;
  SampleOrder order;
  std::mutex mutex;
  std::condition_variable has_room;
  std::condition_variable has_batches;
  std::deque<std::vector<Batch>> ready;
  std::exception_ptr failure;
  std::atomic<bool> stopped = false;
  double waited_seconds = 0;
  std::thread thread;
};

BatchLoader::BatchLoader(std::shared_ptr<const Task> task, const Options& options)
    : state_(std::make_unique<State>(std::move(task), options)) {
  state_->thread = std::thread([state = state_.get()] { state->run(); });
}

BatchLoader::~BatchLoader() {
  {
    const std::lock_guard lock(state_->mutex);
    state_->stopped = true;
  }
  state_->has_room.notify_one();
  state_->thread.join();
}

double BatchLoader::held_bytes(const Options& options, double bytes_per_sample) {
  return static_cast<double>(updates_ahead(options, bytes_per_sample) + 1) *
         bytes_of_update(options, bytes_per_sample);
}

std::vector<Batch> BatchLoader::next_update() {
  const auto began = std::chrono::steady_clock::now();
  std::unique_lock lock(state_->mutex);
  state_->has_batches.wait(lock, [this] { return !state_->ready.empty() || state_->failure; });
  state_->waited_seconds +=
      std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
  if (state_->ready.empty()) {
    std::rethrow_exception(state_->failure);
  }
  std::vector<Batch> batches = std::move(state_->ready.front());
  state_->ready.pop_front();
  state_->has_room.notify_one();
  return batches;
}

double BatchLoader::waited_seconds() const {
  const std::lock_guard lock(state_->mutex);
  return state_->waited_seconds;
}

}  // namespace transnormer
