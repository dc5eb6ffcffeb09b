#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <thread>
#include <utility>

#include "data/batches.h"

namespace transnormer {
namespace {

std::vector<Batch> make_update(const Samples& samples, SampleOrder& order,
                               const BatchLoader::Options& options, std::int64_t update) {
  std::vector<Batch> batches;
  const std::int64_t end = (update + 1) * options.global_batch_size;
  for (std::int64_t position = end - options.global_batch_size; position < end;) {
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

}  // namespace

struct BatchLoader::State {
  State(Samples from, const Options& how)
      : samples(std::move(from)), options(how), order(samples.count(), how.seed) {}

  // The thread: keeps `ready` filled until it is stopped or fails.
  void run() {
    try {
      for (std::int64_t update = options.first_update;; ++update) {
        std::vector<Batch> batches = make_update(samples, order, options, update);
        std::unique_lock lock(mutex);
        has_room.wait(lock, [this] { return stopped || ready.size() < options.ahead; });
        if (stopped) {
          return;
        }
        ready.push_back(std::move(batches));
        has_batches.notify_one();
      }
    } catch (...) {
      const std::lock_guard lock(mutex);
      failure = std::current_exception();
      has_batches.notify_one();
    }
  }

  const Samples samples;
  const Options options;
  SampleOrder order;
  std::mutex mutex;
  std::condition_variable has_room;
  std::condition_variable has_batches;
  std::deque<std::vector<Batch>> ready;
  std::exception_ptr failure;
  bool stopped = false;
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
