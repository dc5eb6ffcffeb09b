#include "fuzz/fuzzer.h"

#include <stdlib.h>

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <system_error>

namespace transnormer::fuzz {
namespace {

class Directory {
 public:
  Directory() {
    std::string name =
        (std::filesystem::temp_directory_path() / "transnormer-fuzz-XXXXXX").string();
    if (::mkdtemp(name.data()) == nullptr) {
      throw std::system_error(errno, std::generic_category(), name);
    }
    path_ = name;
  }
  ~Directory() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  Directory(const Directory&) = delete;
  Directory& operator=(const Directory&) = delete;

  [[nodiscard]] const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

}  // namespace

void require(bool holds, const std::string& promise) {
  if (!holds) {
    throw std::logic_error("broken: " + promise);
  }
}

void require_readable(const UserError& error) {
  constexpr std::size_t kLongest = std::size_t{1} << 15;
  const auto is_control = [](unsigned char byte) { return byte < ' ' || byte == 0x7F; };
  require(!error.faults().empty(), "an error has a fault");
  for (const std::string& fault : error.faults()) {
    require(std::ranges::none_of(fault, is_control), "a fault is one line that can be printed");
    require(fault.size() <= kLongest, "a fault is short");
  }
}

const std::filesystem::path& scratch() {
  static const Directory directory;
  return directory.path();
}

std::filesystem::path put(const std::string& name, std::string_view bytes) {
  std::filesystem::path path = scratch() / name;
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  file.close();
  if (!file) {
    throw std::runtime_error(path.string() + ": cannot be written");
  }
  return path;
}

std::string contents(const std::filesystem::path& file) {
  std::ifstream stream(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), {}};
}

}  // namespace transnormer::fuzz
