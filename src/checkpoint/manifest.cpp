#include "checkpoint/manifest.h"

#include <future>
#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

#include "checkpoint/layout.h"
#include "util/error.h"
#include "util/file.h"
#include "util/hash.h"

namespace transnormer {
namespace fs = std::filesystem;
namespace {

using Json = nlohmann::ordered_json;

void check_format(const Json& json, const std::string& name) {
  const auto format = json.is_object() ? json.find("format") : json.end();
  if (!json.is_object() || format == json.end() || !format->is_number_integer()) {
    throw DamagedCheckpointError(name +
                                 ": not the manifest of a transnormer checkpoint, or damaged");
  }
  const auto number = format->get<std::int64_t>();
  if (number > kCheckpointFormat) {
    throw NewerFormatError(name + ": checkpoint format " + std::to_string(number) +
                           " is newer than format " + std::to_string(kCheckpointFormat) +
                           ", the newest that this program reads; use a newer transnormer");
  }
  if (number < 1) {
    throw DamagedCheckpointError(name + ": there is no checkpoint format " +
                                 std::to_string(number) + "; the manifest is damaged");
  }
}

// Names come from a file that may be foreign: none may lead out of the checkpoint.
bool is_plain_name(const std::string& name) {
  return !name.empty() && name != "." && name != ".." && name.find('/') == std::string::npos;
}

// What is wrong with a file, for people; throws UserError where that cannot be told.
std::optional<std::string> damage_of(const fs::path& path, const ManifestFile& expected) {
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (status.type() == fs::file_type::not_found) {
    return path.string() + ": missing from the checkpoint";
  }
  if (!error && !fs::is_regular_file(status)) {
    return path.string() + ": damaged: not a file";
  }
  const std::uintmax_t size = error ? 0 : fs::file_size(path, error);
  if (error) {
    throw UserError(path.string() + ": cannot be read: " + error.message());
  }
  if (static_cast<std::int64_t>(size) != expected.size) {
    return path.string() + ": damaged: " + std::to_string(size) +
           " bytes long, the manifest says " + std::to_string(expected.size);
  }
  if (sha256_of_file(path) != expected.sha256) {
    return path.string() + ": damaged: its SHA-256 is not the manifest's";
  }
  return std::nullopt;
}

}  // namespace

std::string manifest_to_json(const Manifest& manifest) {
  Json files = Json::object();
  for (const auto& [name, file] : manifest.files) {
    files[name] = {{"size", file.size}, {"sha256", file.sha256}};
  }
  const Json json = {{"format", manifest.format},
                     {"program", manifest.program},
                     {"step", manifest.step},
                     {"tokens", manifest.tokens},
                     {"files", files}};
  return json.dump(2) + '\n';
}

Manifest read_manifest(const fs::path& checkpoint) {
  const std::string name = (checkpoint / kManifestFile).string();
  const Json json = Json::parse(read_file(name), nullptr, /*allow_exceptions=*/false);
  check_format(json, name);
  try {
    Manifest manifest;
    manifest.format = json.at("format");
    manifest.program = json.at("program");
    manifest.step = json.at("step");
    manifest.tokens = json.at("tokens");
    for (const auto& [file, entry] : json.at("files").items()) {
      if (!is_plain_name(file)) {
        throw DamagedCheckpointError(name + ": \"" + file +
                                     "\" is no name of a file in a checkpoint");
      }
      manifest.files[file] = {entry.at("size"), entry.at("sha256")};
    }
    return manifest;
  } catch (const Json::exception&) {
    throw DamagedCheckpointError(name + ": damaged: a key is missing or has a wrong type");
  }
}

void verify_files(const fs::path& checkpoint, const Manifest& manifest) {
  std::vector<std::future<std::optional<std::string>>> checks;
  for (const auto& [file, expected] : manifest.files) {
    checks.push_back(std::async(std::launch::async, damage_of, checkpoint / file, expected));
  }
  std::vector<std::string> damages;
  std::vector<std::string> unreadable;
  for (auto& check : checks) {
    try {
      if (auto damage = check.get()) {
        damages.push_back(*damage);
      }
    } catch (const UserError& error) {
      unreadable.emplace_back(error.what());
    }
  }
  if (!unreadable.empty()) {
    throw UserError(unreadable);
  }
  if (!damages.empty()) {
    throw DamagedCheckpointError(damages);
  }
}

}  // namespace transnormer
