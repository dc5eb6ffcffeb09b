#include "analyze/output_directory.h"

#include <algorithm>
#include <array>
#include <utility>

#include "analyze/png.h"
#include "util/file.h"

namespace transnormer {

OutputDirectory::OutputDirectory(std::filesystem::path path) : path_(std::move(path)) {
  make_directories(path_);
}

void OutputDirectory::write(const std::string& name, std::string_view bytes) {
  if (!is_somewhere()) {
    return;
  }
  write_file_atomically(path_ / name, bytes);
  files_.push_back((path_ / name).string());
}

bool is_file_of_analysis(const InputFile& file) {
  // How the tables begin: see measurement.cpp.
  constexpr std::array<std::string_view, 5> kBeginnings{
      "share,layer_", "query,0", "layer,attention,form,", "layer,attention,denominator,",
      "layer,head,key_dim,"};
  if (is_own_png(file)) {
    return true;
  }
  constexpr std::int64_t kLongest = 64;
  std::string head(static_cast<std::size_t>(std::min(file.size(), kLongest)), ' ');
  file.read_at(0, head.data(), head.size());
  return std::any_of(kBeginnings.begin(), kBeginnings.end(), [&head](std::string_view beginning) {
    return std::string_view(head).starts_with(beginning);
  });
}

}  // namespace transnormer
