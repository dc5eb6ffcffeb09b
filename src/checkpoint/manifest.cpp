#include "checkpoint/manifest.h"

#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

#include "checkpoint/layout.h"
#include "config/json_tree.h"
#include "util/error.h"
#include "util/file.h"
#include "util/foreign_json.h"
#include "util/hash.h"
#include "util/parallel.h"

namespace transnormer {
namespace fs = std::filesystem;
namespace {

using Json = nlohmann::json;

constexpr std::int64_t kLargestManifest = 64 << 20;  // bytes
constexpr std::size_t kFilesAtOnce = 4;              // that are digested

// A number that is no count.
struct OutOfRange {
  std::string key;
};

void check_format(const Json& json, const std::string& name) {
  const auto format = json.is_object() ? json.find("format") : json.end();
  if (!json.is_object() || format == json.end() || !format->is_number_integer()) {
    throw DamagedCheckpointError(name +
                                 ": not the manifest of a transnormer checkpoint, or damaged");
  }
  constexpr std::int64_t kBeyondAll = std::numeric_limits<std::int64_t>::max();
  const std::int64_t number = json_integer(*format).value_or(kBeyondAll);
  if (number > kCheckpointFormat) {
    throw NewerFormatError(name + ": checkpoint format " + format->dump() +
                           " is newer than format " + std::to_string(kCheckpointFormat) +
                           ", the newest that this program reads; use a newer transnormer");
  }
  if (number < 1) {
    throw DamagedCheckpointError(name + ": there is no checkpoint format " +
                                 std::to_string(number) + "; the manifest is damaged");
  }
}

// Names come from a file that may be foreign: none may lead out of the checkpoint, and each must do
// for a message.
bool is_plain_name(const std::string& name) {
  return !name.empty() && name != "." && name != ".." && name.find('/') == std::string::npos &&
         name == printable(name, false);
}

// What a file of a checkpoint turned out to be: sound, or damaged, or not to be read now.
struct Verdict {
  std::optional<InputFile> sound = {};
  std::string damage = {};
  std::string unreadable = {};
};

Verdict open_file(const fs::path& path) {
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (status.type() == fs::file_type::not_found) {
    return {.damage = path.string() + ": missing from the checkpoint"};
  }
  const bool loops = error == std::errc::too_many_symbolic_link_levels;
  if (loops || (!error && !fs::is_regular_file(status))) {
    return {.damage = path.string() + ": damaged: not a file"};
  }
  try {
    return {.sound = InputFile(path)};
  } catch (const UserError& fault) {
    return {.unreadable = fault.what()};
  }
}

Verdict verify(const InputFile& file, const ManifestFile& expected) {
  const std::string name = file.path().string();
  try {
    if (file.size() != expected.size) {
      return {.damage = name + ": damaged: " + std::to_string(file.size()) +
                        " bytes long, the manifest says " + std::to_string(expected.size)};
    }
    if (sha256(file) != expected.sha256) {
      return {.damage = name + ": damaged: its SHA-256 is not the manifest's"};
    }
    return {.sound = file};
  } catch (const UserError& fault) {
    return {.unreadable = fault.what()};
  }
}

std::int64_t count_at(const Json& json, const char* key) {
  const std::int64_t value = json_integer(json.at(key)).value_or(-1);
  if (value < 0) {
    throw OutOfRange{key};
  }
  return value;
}

std::vector<AveragedCheckpoint> averaged_in(const Json& json) {
  std::vector<AveragedCheckpoint> averaged;
  for (const Json& source : json.value("averaged", Json::array())) {
    averaged.push_back({source.at("path"), count_at(source, "step"), source.at("model_sha256")});
  }
  return averaged;
}

std::vector<std::string> some_of(std::vector<std::string> faults) {
  constexpr std::size_t kMost = 10;
  if (faults.size() > kMost) {
    const std::size_t more = faults.size() - kMost;
    faults.resize(kMost);
    faults.push_back("and " + std::to_string(more) + " more files of the same checkpoint");
  }
  return faults;
}

}  // namespace

std::string manifest_to_json(const Manifest& manifest) {
  using Ordered = nlohmann::ordered_json;
  Ordered files = Ordered::object();
  for (const auto& [name, file] : manifest.files) {
    files[name] = {{"size", file.size}, {"sha256", file.sha256}};
  }
  Ordered json = {{"format", manifest.format},
                  {"program", manifest.program},
                  {"step", manifest.step},
                  {"tokens", manifest.tokens}};
  for (const AveragedCheckpoint& source : manifest.averaged) {
    json["averaged"].push_back(
        {{"path", source.path}, {"step", source.step}, {"model_sha256", source.model_sha256}});
  }
  json["files"] = files;
  return json.dump(2, ' ', /*ensure_ascii=*/false, Json::error_handler_t::replace) + '\n';
}

Manifest read_manifest(const fs::path& directory, const std::string& file_name) {
  const std::string name = (directory / file_name).string();
  std::error_code loop;
  (void)fs::status(name, loop);
  if (loop == std::errc::too_many_symbolic_link_levels) {
    throw DamagedCheckpointError(name + ": damaged: a link that leads to itself");
  }
  const Json json = parse_foreign_json(read_regular_file(name, kLargestManifest));
  check_format(json, name);
  try {
    Manifest manifest;
    manifest.format = json.at("format");
    manifest.program = json.at("program");
    manifest.step = count_at(json, "step");
    manifest.tokens = count_at(json, "tokens");
    manifest.averaged = averaged_in(json);
    for (const auto& [file, entry] : json.at("files").items()) {
      if (!is_plain_name(file)) {
        throw DamagedCheckpointError(name + ": " + printable(file, true) +
                                     " is no name of a file in a checkpoint");
      }
      manifest.files[file] = {count_at(entry, "size"), entry.at("sha256")};
    }
    return manifest;
  } catch (const Json::exception&) {
    throw DamagedCheckpointError(name + ": damaged: a key is missing or has a wrong type");
  } catch (const OutOfRange& fault) {
    throw DamagedCheckpointError(name + ": damaged: \"" + fault.key +
                                 "\" is no integer of at least 0");
  }
}

std::map<std::string, InputFile> open_verified(const fs::path& checkpoint, const Manifest& manifest,
                                               const std::set<std::string>& wanted) {
  std::vector<std::pair<std::string, ManifestFile>> files(manifest.files.begin(),
                                                          manifest.files.end());
  std::vector<Verdict> verdicts(files.size());
  // At once, before the long work begins in which a training may remove the checkpoint.
  for (std::size_t i = 0; i < files.size(); ++i) {
    if (wanted.contains(files[i].first)) {
      verdicts[i] = open_file(checkpoint / files[i].first);
    }
  }
  for_each_index(files.size(), kFilesAtOnce, [&](std::size_t i) {
    const bool is_wanted = wanted.contains(files[i].first);
    if (!is_wanted) {
      verdicts[i] = open_file(checkpoint / files[i].first);
    }
    if (verdicts[i].sound) {
      verdicts[i] = verify(*verdicts[i].sound, files[i].second);
    }
    if (!is_wanted) {
      verdicts[i].sound.reset();  // no more files open than are needed
    }
  });
  std::vector<std::string> damages;
  std::vector<std::string> unreadable;
  std::map<std::string, InputFile> open;
  for (std::size_t i = 0; i < files.size(); ++i) {
    const Verdict& verdict = verdicts[i];
    if (!verdict.unreadable.empty()) {
      unreadable.push_back(verdict.unreadable);
    } else if (!verdict.damage.empty()) {
      damages.push_back(verdict.damage);
    } else if (verdict.sound) {
      open.emplace(files[i].first, *verdict.sound);
    }
  }
  if (!unreadable.empty()) {
    throw UserError(some_of(std::move(unreadable)));
  }
  if (!damages.empty()) {
    throw DamagedCheckpointError(some_of(std::move(damages)));
  }
  return open;
}

}  // namespace transnormer
