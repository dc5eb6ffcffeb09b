// All cores work on the pieces of a text; what they make is taken in the order of the text.
#pragma once

#include <condition_variable>
#include <exception>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "data/text_reader.h"
#include "util/parallel.h"

namespace transnormer {

// Each of `threads` threads (fewer where the system grants no more) reads a chunk, calls
// `work(thread, chunk)` on it, waits until it is the chunk's turn, and calls
// `consume(result)`. So consume is never called twice at a time, and no more chunks are held than
// there are threads. The first exception stops all and is thrown.
template <typename Work, typename Consume>
void for_each_chunk(TextReader& reader, int threads, const Work& work, const Consume& consume) {
  std::mutex reading;
  std::mutex taking_turns;
  std::condition_variable turn_came;
  std::int64_t turn = 0;
  std::exception_ptr failure;

  const auto run = [&](int thread) {
    try {
      while (true) {
        TextChunk chunk;
        {
          const std::lock_guard lock(reading);
          if (failure || !reader.next(chunk)) {
            return;
          }
        }
        auto result = work(thread, std::as_const(chunk));
        std::unique_lock lock(taking_turns);
        turn_came.wait(lock, [&] { return failure || turn == chunk.number; });
        if (failure) {
          return;
        }
        consume(std::move(result));
        ++turn;
        turn_came.notify_all();
      }
    } catch (...) {
      const std::scoped_lock lock(reading, taking_turns);
      failure = failure ? failure : std::current_exception();
      turn_came.notify_all();
    }
  };

  {
    const auto others = start_threads(static_cast<std::size_t>(threads - 1),
                                      [&run](std::size_t i) { run(static_cast<int>(i) + 1); });
    run(0);
  }
  if (failure) {
    std::rethrow_exception(failure);
  }
}

}  // namespace transnormer
