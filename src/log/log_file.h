// What the files of a run's log have in common: what they lose, and whose place they are in.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>

namespace transnormer::log {

// Records that a file has lost because it could not be written.
struct LostRecords {
  std::filesystem::path file;
  std::int64_t count = 0;    // in all
  bool still_fails = false;  // the last record was one of them
};

// Whether the directory that a file was opened in is still that of this run, so that records may go
// there. Where there is no such function, it is.
using StillOurs = std::function<bool()>;

}  // namespace transnormer::log
