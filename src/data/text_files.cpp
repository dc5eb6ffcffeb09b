#include "data/text_files.h"

#include <glob.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "util/error.h"

namespace transnormer {
namespace {

namespace fs = std::filesystem;

std::vector<fs::path> expand_glob(const std::string& pattern) {
  std::vector<fs::path> files;
  glob_t matches{};
  if (::glob(pattern.c_str(), GLOB_NOSORT, nullptr, &matches) == 0) {
    for (std::size_t i = 0; i < matches.gl_pathc; ++i) {
      if (fs::is_regular_file(matches.gl_pathv[i])) {
        files.emplace_back(matches.gl_pathv[i]);
      }
    }
  }
  ::globfree(&matches);
  std::ranges::sort(files, {}, [](const fs::path& path) { return path.native(); });
  return files;
}

}  // namespace

std::vector<fs::path> find_text_files(const std::vector<std::string>& entries,
                                      const std::string& key) {
  std::vector<fs::path> files;
  for (const std::string& entry : entries) {
    std::error_code error;
    const fs::file_status status = fs::status(entry, error);
    if (fs::is_directory(status)) {
      throw UserError(key + ": " + entry + " is a directory; name its files, or a glob such as " +
                      (fs::path(entry) / "*.txt").string());
    }
    if (fs::is_regular_file(status)) {
      files.emplace_back(entry);
      continue;
    }
    if (fs::exists(status)) {
      throw UserError(key + ": " + entry + " is not a regular file");
    }
    if (entry.find_first_of("*?[") == std::string::npos) {
      const bool missing = status.type() == fs::file_type::not_found;
      throw UserError(key + ": " + entry +
                      (missing ? ": there is no such file" : ": " + error.message()));
    }
    const std::vector<fs::path> matches = expand_glob(entry);
    if (matches.empty()) {
      throw UserError(key + ": no file matches " + entry);
    }
    files.insert(files.end(), matches.begin(), matches.end());
  }
  if (files.empty()) {
    throw UserError(key + ": names no file");
  }
  return files;
}

FileIdentity identify(const fs::path& path) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) {
    throw UserError(path.string() + ": cannot be read: " + std::strerror(errno));
  }
  const auto nanoseconds = [](const timespec& time) {
    return std::int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
  };
  return {status.st_size, nanoseconds(status.st_mtim), nanoseconds(status.st_ctim), status.st_ino};
}

}  // namespace transnormer
