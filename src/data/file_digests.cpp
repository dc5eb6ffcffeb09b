#include "data/file_digests.h"

#include <chrono>
#include <nlohmann/json.hpp>
#include <optional>
#include <system_error>

#include "data/cache_lock.h"
#include "log/console.h"
#include "util/file.h"
#include "util/hash.h"
#include "util/input_file.h"

namespace transnormer {
namespace {

constexpr int kIndexVersion = 1;

// A file written a moment ago may be written again within the same tick of the file system's
// clock; only older ones are worth remembering.
bool is_settled(const FileIdentity& identity) {
  constexpr std::int64_t kTick = 2'000'000'000;
  const std::int64_t now = std::chrono::duration_cast<std::chrono::nanoseconds>(
                               std::chrono::system_clock::now().time_since_epoch())
                               .count();
  return std::max(identity.modified_ns, identity.changed_ns) + kTick < now;
}

}  // namespace

FileDigests::FileDigests(const std::filesystem::path& cache_dir)
    : index_(cache_dir / "index.json") {
  try {
    read_index();
  } catch (const std::exception& error) {
    log::warn(index_.string() +
              ": is no index of text digests and stays as it is; remove it, or texts are read once "
              "more at every start");
    log::debug(error.what());
    entries_.clear();
    is_ours_ = false;
  }
}

void FileDigests::read_index() {
  if (!std::filesystem::exists(index_)) {
    return;
  }
  const std::string bytes = read_regular_file(index_);
  if (bytes.empty()) {
    return;
  }
  is_ours_ = false;
  const auto json = nlohmann::json::parse(bytes);
  if (json.at("version") != kIndexVersion) {
    return;
  }
  is_ours_ = json.at("digests").is_object();
  for (const auto& [path, entry] : json.at("digests").items()) {
    entries_[path] = {
        {entry.at("size"), entry.at("modified_ns"), entry.at("changed_ns"), entry.at("inode")},
        entry.at("offset"),
        entry.at("sha256")};
  }
}

std::string FileDigests::digest(const InputFile& file, std::int64_t offset) {
  std::error_code error;  // a working directory that is gone leaves only the name as it is
  const std::filesystem::path whole = std::filesystem::absolute(file.path(), error);
  const std::string name = error ? file.path().string() : whole.string();
  const FileIdentity identity = identify(file);
  const auto known = entries_.find(name);
  if (known != entries_.end() && known->second.identity == identity &&
      known->second.offset == offset) {
    return known->second.digest;
  }
  std::string digest = sha256(file, offset);
  if (identify(file) == identity && is_settled(identity)) {
    entries_[name] = {identity, offset, digest};
    changed_ = true;
  }
  return digest;
}

std::string FileDigests::digest(const std::vector<std::filesystem::path>& files) {
  Sha256 all;
  for (const std::filesystem::path& file : files) {
    all.update(digest(InputFile(file)) + '\n');
  }
  return all.hex();
}

void FileDigests::save() {
  try {
    write_index();
  } catch (const std::exception& error) {
    log::debug(index_.string() + ": is not written: " + error.what());
  }
}

void FileDigests::write_index() {
  std::error_code error;
  if (!changed_ || !is_ours_ || !std::filesystem::is_directory(index_.parent_path(), error)) {
    return;
  }
  const std::optional<FileLock> lock = try_lock_cache(index_.parent_path());
  if (!lock) {
    return;
  }
  nlohmann::json digests = nlohmann::json::object();
  for (const auto& [path, entry] : entries_) {
    if (std::filesystem::exists(path, error)) {
      digests[path] = {{"size", entry.identity.size},
                       {"modified_ns", entry.identity.modified_ns},
                       {"changed_ns", entry.identity.changed_ns},
                       {"inode", entry.identity.inode},
                       {"offset", entry.offset},
                       {"sha256", entry.digest}};
    }
  }
  const nlohmann::json json{{"version", kIndexVersion}, {"digests", std::move(digests)}};
  constexpr auto kReplace = nlohmann::json::error_handler_t::replace;  // paths need not be UTF-8
  write_file_atomically(index_, json.dump(1, ' ', false, kReplace) + '\n');
  changed_ = false;
}

}  // namespace transnormer
