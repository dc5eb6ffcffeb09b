// A file that grows record by record while training runs. Internal to src/log.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string_view>

namespace transnormer::log {

class AppendFile {
 public:
  // Throws WriteError where the file cannot be opened.
  explicit AppendFile(std::filesystem::path path);
  ~AppendFile();
  AppendFile(const AppendFile&) = delete;
  AppendFile& operator=(const AppendFile&) = delete;

  // One write() a record, so that a killed process leaves whole records. The first failure (a full
  // disk) is reported through log::error, what was written of the record is taken back, and the
  // file is given up: metrics are not worth stopping a training for.
  void append(std::string_view record);

 private:
  std::filesystem::path path_;
  int descriptor_;
};

}  // namespace transnormer::log
