// A file that grows record by record while training runs. Internal to src/log.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <functional>
#include <mutex>
#include <string>
#include <string_view>

#include "log/console.h"
#include "log/log_file.h"

namespace transnormer::log {

struct AppendFileOptions {
  // Told of a failure to write, once until a record is written again.
  std::function<void(const std::string&)> report = error;
  StillOurs still_ours = {};              // asked before each record
  std::function<void()> make_place = {};  // before a file that is gone is made again
  std::string header = {};                // begins a file that is empty
};

class AppendFile {
 public:
  // Throws WriteError where the file cannot be opened.
  explicit AppendFile(std::filesystem::path path, AppendFileOptions options = {});
  ~AppendFile();
  AppendFile(const AppendFile&) = delete;
  AppendFile& operator=(const AppendFile&) = delete;

  // One write() a record, so that a killed process leaves whole records. What is at the path is
  // written: where that is no longer the file which was opened (removed, moved, replaced), it is
  // opened anew. A record that cannot be written (a full disk) is lost, what was written of it is
  // taken back, and the next one is tried again: it is not worth stopping a training for.
  void append(std::string_view record);

  // What was appended before is on the disk when this returns. Other threads may append meanwhile.
  // Throws WriteError.
  void flush() const;

  [[nodiscard]] const LostRecords& lost() const { return lost_; }

 private:
  // Why the record could not be written; empty where it was.
  [[nodiscard]] std::string write(std::string_view record);
  [[nodiscard]] bool open();
  // Cuts the file back to where its last whole record ends.
  [[nodiscard]] bool cut_torn_record();

  std::filesystem::path path_;
  AppendFileOptions options_;
  mutable std::mutex mutex_;  // guards the descriptor
  LostRecords lost_;
  int descriptor_ = -1;
  off_t torn_from_ = -1;  // where a part of a record lies that could not be taken back
};

}  // namespace transnormer::log
