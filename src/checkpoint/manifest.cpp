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
    throw UserError(name + ": not the manifest of a transnormer checkpoint, or damaged");
  }
  const auto number = format->get<std::int64_t>();
  if (number > kCheckpointFormat) {
    throw NewerFormatError(name + ": checkpoint format " + std::to_string(number) +
                           " is newer than format " + std::to_string(kCheckpointFormat) +
                           ", the newest that this program reads; use a newer transnormer");
  }
  if (number < 1) {
    throw UserError(name + ": there is no checkpoint format " + std::to_string(number) +
                    "; the manifest is damaged");
  }
}

// Names come from a file that may be foreign: none may lead out of the checkpoint.
bool is_plain_name(const std::string& name) {
  return !name.empty() && name != "." && name != ".." && name.find('/') == std::string::npos;
}

std::optional<std::string> fault_of(const fs::path& path, const ManifestFile& expected) {
  std::error_code error;
  if (!fs::is_regular_file(path, error)) {
    return path.string() + ": missing from the checkpoint";
  }
  const auto size = static_cast<std::int64_t>(fs::file_size(path, error));
  if (error || size != expected.size) {
    return path.string() + ": damaged: " + std::to_string(size) +
           " bytes long, the manifest says " + std::to_string(expected.size);
  }
  try {
    if (sha256_of_file(path) != expected.sha256) {
      return path.string() + ": damaged: its SHA-256 is not the manifest's";
    }
  } catch (const UserError& unreadable) {
    return unreadable.what();
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
        throw UserError(name + ": \"" + file + "\" is no name of a file in a checkpoint");
      }
      manifest.files[file] = {entry.at("size"), entry.at("sha256")};
    }
    return manifest;
  } catch (const Json::exception&) {
    throw UserError(name + ": damaged: a key is missing or has a wrong type");
  }
}

void verify_files(const fs::path& checkpoint, const Manifest& manifest) {
  std::vector<std::future<std::optional<std::string>>> checks;
  for (const auto& [file, expected] : manifest.files) {
    checks.push_back(std::async(std::launch::async, fault_of, checkpoint / file, expected));
  }
  std::vector<std::string> faults;
  for (auto& check : checks) {
    if (auto fault = check.get()) {
      faults.push_back(*fault);
    }
  }
  if (!faults.empty()) {
    throw UserError(faults);
  }
}

}  // namespace transnormer
