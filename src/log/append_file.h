// A file that grows record by record while training runs. Internal to src/log.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>

#include "log/console.h"

namespace transnormer::log {

class AppendFile {
 public:
  using Report = std::function<void(const std::string&)>;

  // Throws WriteError where the file cannot be opened. `report` is told of a failure to write.
  explicit AppendFile(std::filesystem::path path, Report report = error);
  ~AppendFile();
  AppendFile(const AppendFile&) = delete;
  AppendFile& operator=(const AppendFile&) = delete;

  // One write() a record, so that a killed process leaves whole records. The first failure (a full
  // disk) is reported, what was written of the record is taken back, and the file is given up: it
  // is not worth stopping a training for.
  void append(std::string_view record);

 private:
  std::filesystem::path path_;
  Report report_;
  int descriptor_;
};

}  // namespace transnormer::log
