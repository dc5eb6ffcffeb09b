// Where an analysis leaves its files, if anywhere.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "util/input_file.h"

namespace transnormer {

class OutputDirectory {
 public:
  OutputDirectory() = default;  // nowhere: what is written is dropped
  // Made where missing, with those above it. Throws WriteError where that fails.
  explicit OutputDirectory(std::filesystem::path path);

  [[nodiscard]] bool is_somewhere() const { return !path_.empty(); }
  // The whole file appears at once, in the place of one of that name.
  void write(const std::string& name, std::string_view bytes);
  // Paths of what was written, in that order.
  [[nodiscard]] const std::vector<std::string>& files() const { return files_; }

 private:
  std::filesystem::path path_;
  std::vector<std::string> files_;
};

// Whether a file is a picture or a table that an analysis made, so that another may replace it.
[[nodiscard]] bool is_file_of_analysis(const InputFile& file);

}  // namespace transnormer
