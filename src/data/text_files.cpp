#include "data/text_files.h"

#include <glob.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string_view>
#include <system_error>

#include "data/text_input.h"
#include "data/text_origins.h"
#include "util/error.h"

namespace transnormer {
namespace {

namespace fs = std::filesystem;

std::vector<fs::path> expand_glob(const std::string& pattern) {
  std::vector<fs::path> files;
  glob_t matches{};
  if (::glob(pattern.c_str(), GLOB_NOSORT, nullptr, &matches) == 0) {
    for (std::size_t i = 0; i < matches.gl_pathc; ++i) {
      std::error_code error;
      if (fs::is_regular_file(matches.gl_pathv[i], error)) {
        files.emplace_back(matches.gl_pathv[i]);
      }
    }
  }
  ::globfree(&matches);
  std::ranges::sort(files, {}, [](const fs::path& path) { return path.native(); });
  return files;
}

FileIdentity identity_of(const struct stat& status) {
  const auto nanoseconds = [](const timespec& time) {
    return std::int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
  };
  return {status.st_size, nanoseconds(status.st_mtim), nanoseconds(status.st_ctim), status.st_ino};
}

// The entry as glob() reads one without wildcards.
std::string without_escapes(const std::string& entry) {
  std::string text;
  for (std::size_t i = 0; i < entry.size(); ++i) {
    i += static_cast<std::size_t>(entry[i] == '\\' && i + 1 < entry.size());
    text += entry[i];
  }
  return text;
}

bool has_wildcard(const std::string& entry) {
  for (std::size_t i = 0; i < entry.size(); ++i) {
    if (entry[i] == '\\') {
      ++i;
    } else if (std::string_view("*?[").find(entry[i]) != std::string_view::npos) {
      return true;
    }
  }
  return false;
}

bool exists(const std::string& path) {
  std::error_code error;
  return fs::exists(path, error);
}

[[noreturn]] void fail_read_once(const std::string& key, const std::string& name) {
  throw UserError(key + ": " + name +
                  " can be read once only, and this text is read several times: to know it again, "
                  "for the vocabulary, for the tokens; write it to a file and name that");
}

// The files of one entry.
std::vector<fs::path> expand(const std::string& entry, const std::string& key) {
  if (entry == kStandardInput) {
    fail_read_once(key, "standard input");
  }
  const std::string name = exists(entry) ? entry : without_escapes(entry);
  std::error_code error;
  const fs::file_status status = fs::status(name, error);
  if (fs::is_directory(status)) {
    throw UserError(key + ": " + name + " is a directory; name its files, or a glob such as " +
                    (fs::path(name) / "*.txt").string());
  }
  if (fs::is_regular_file(status)) {
    return {name};
  }
  if (fs::is_fifo(status)) {
    fail_read_once(key, name);
  }
  if (fs::exists(status)) {
    throw UserError(key + ": " + name + " is not a regular file");
  }
  if (!has_wildcard(entry)) {
    const bool missing = status.type() == fs::file_type::not_found;
    throw UserError(
        key + ": " + name +
        (missing ? ": there is no such file" + where_from(name) : ": " + error.message()));
  }
  std::vector<fs::path> matches = expand_glob(entry);
  if (matches.empty()) {
    throw UserError(key + ": no file matches " + entry + where_from(entry));
  }
  return matches;
}

}  // namespace

std::vector<fs::path> find_text_files(const std::vector<std::string>& entries,
                                      const std::string& key) {
  std::vector<fs::path> files;
  for (const std::string& entry : entries) {
    const std::vector<fs::path> of_entry = expand(entry, key);
    files.insert(files.end(), of_entry.begin(), of_entry.end());
  }
  if (files.empty()) {
    throw UserError(key + ": names no file");
  }
  return files;
}

FileIdentity identify(const fs::path& path) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) {
    throw UserError(path.string() + ": cannot be read: " + system_reason(errno));
  }
  return identity_of(status);
}

FileIdentity identify(const InputFile& file) {
  return identity_of(file.status());
}

std::vector<FileIdentity> identify(const std::vector<fs::path>& files) {
  std::vector<FileIdentity> identities;
  for (const fs::path& file : files) {
    identities.push_back(identify(file));
  }
  return identities;
}

void check_unchanged(const std::vector<fs::path>& files, const std::vector<FileIdentity>& before,
                     const std::string& key) {
  for (std::size_t i = 0; i < files.size(); ++i) {
    if (identify(files[i]) != before[i]) {
      throw UserError(key + ": " + files[i].string() + " changed while it was read; run again");
    }
  }
}

}  // namespace transnormer
