#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <new>
#include <thread>
#include <utility>

#include "data/batches.h"
#include "util/error.h"
#include "util/units.h"

namespace transnormer {
namespace {

std::int64_t micro_batches(const BatchLoader::Options& options) {
  return (options.global_batch_size + options.micro_batch_size - 1) / options.micro_batch_size;
}

double bytes_of_update(const BatchLoader::Options& options, std::int64_t length) {
  constexpr double kOverhead = sizeof(Batch) + 64;  // with what the allocator adds
  const double tokens =
      static_cast<double>(options.global_batch_size) * static_cast<double>(length);
  return 2 * sizeof(std::int64_t) * tokens +
         kOverhead * static_cast<double>(micro_batches(options));
}

// How many updates are made or held ready while one is in use.
std::size_t updates_ahead(const BatchLoader::Options& options, std::int64_t length) {
  constexpr double kBytes = 256 << 20;  // of all that are ahead, where one does not take more
  constexpr double kMost = 4;
  return static_cast<std::size_t>(
      std::clamp(kBytes / bytes_of_update(options, length), 1.0, kMost));
}

}  // namespace

struct BatchLoader::State {
  State(Samples from, const Options& how)
      : samples(std::move(from)),
        options(how),
        ahead(updates_ahead(how, samples.length())),
        order(samples.count(), how.seed) {}

  // The thread: keeps `ready` filled until it is stopped or fails.
  void run() {
    try {
      for (std::int64_t update = options.first_update; wait_for_room(); ++update) {
        std::vector<Batch> batches = make_update(update);
        const std::lock_guard lock(mutex);
        ready.push_back(std::move(batches));
        has_batches.notify_one();
      }
    } catch (const std::bad_alloc&) {
      fail(std::make_exception_ptr(
          UserError("train.global_batch_size: no memory for the " +
                    format_count(options.global_batch_size) + " samples of an update, " +
                    format_count(samples.length()) + " tokens each; set a smaller one")));
    } catch (...) {
      fail(std::current_exception());
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
    const std::int64_t end = (update + 1) * options.global_batch_size;
    for (std::int64_t position = end - options.global_batch_size; position < end && !stopped;) {
      Batch& batch = batches.emplace_back();
      batch.first_position = position;
      const std::int64_t stop = std::min(end, position + options.micro_batch_size);
      const auto cells = static_cast<std::size_t>((stop - position) * samples.length());
      batch.inputs.reserve(cells);
      batch.targets.reserve(cells);
      for (; position < stop; ++position) {
        samples.append(order.sample_at(position), batch);
      }
    }
    return batches;
  }

  void fail(std::exception_ptr reason) {
    const std::lock_guard lock(mutex);
    failure = std::move(reason);
    has_batches.notify_one();
  }

  const Samples samples;
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

BatchLoader::BatchLoader(Samples samples, const Options& options)
    : state_(std::make_unique<State>(std::move(samples), options)) {
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

double BatchLoader::held_bytes(const Options& options, std::int64_t length) {
  return static_cast<double>(updates_ahead(options, length) + 1) * bytes_of_update(options, length);
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
