// What the tests of the data layer share.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <functional>
#include <optional>
#include <string>
#include <thread>

#include "data/cache_lock.h"
#include "log/console.h"
#include "util/error.h"
#include "util/file.h"
#include "util/temporary_directory.h"

namespace transnormer::test {

// The fault that this throws, "none" where it throws none.
inline std::string fault_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const UserError& error) {
    return error.what();
  }
  return "none";
}

// Writes a file without waiting for the disk.
inline void put(const std::filesystem::path& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}

// Another bit at this place of the file.
inline void flip_bit(const std::filesystem::path& path, std::size_t place) {
  std::string bytes = read_file(path);
  bytes.at(place) = static_cast<char>(bytes.at(place) ^ 4);
  put(path, bytes);
}

// The fault of an action that meets the cache directory locked; `meanwhile` runs once the action
// has come to the lock, which is given up then.
inline std::string fault_while_locked(const std::filesystem::path& cache_dir,
                                      const std::function<void()>& action,
                                      const std::function<void()>& meanwhile) {
  const std::filesystem::path log = cache_dir.string() + ".log";
  log::open_file(log);
  std::optional<FileLock> lock = lock_cache(cache_dir);
  std::string fault;
  std::atomic<bool> done = false;
  std::jthread thread([&] {
    fault = fault_of(action);
    done = true;
  });
  const auto waits = [&log] { return read_file(log).find("waiting for") != std::string::npos; };
  while (!done && !waits()) {
    std::this_thread::yield();
  }
  meanwhile();
  lock.reset();
  thread.join();
  log::close_file();
  return fault;
}

}  // namespace transnormer::test
