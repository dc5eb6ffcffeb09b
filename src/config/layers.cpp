#include "config/layers.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "config/fields.h"
#include "config/json_tree.h"
#include "util/error.h"
#include "util/file.h"
#include "util/home.h"
#include "util/units.h"

namespace transnormer {
namespace {

namespace fs = std::filesystem;
using Kind = JsonNode::Kind;

constexpr std::int64_t kLargestFile = 16 << 20;
constexpr std::size_t kLongestChain = 32;    // of files that include the next one
constexpr std::size_t kMostIncludes = 1000;  // in one file

// "FILE:LINE: include".
std::string place_of_include(const ConfigLayer& layer) {
  return layer.name + ":" + std::to_string(layer.root.find("include")->line) + ": include";
}

// What a layer includes, in the order of the list.
std::vector<std::string> included_names(const ConfigLayer& layer,
                                        std::vector<std::string>& faults) {
  const JsonNode* include = layer.root.find("include");
  if (include == nullptr) {
    return {};
  }
  std::vector<std::string> names;
  const auto add = [&](const JsonNode& node) {
    const bool is_path = node.kind == Kind::text && !node.text.empty();
    const std::string how = is_path ? misspelled(node.text, TextKind::file) : "";
    if (is_path && starts_at_home(node.text) && home_directory().empty()) {
      faults.push_back(place_of_include(layer) + ": " + node.shown() +
                       " starts at \"~\", and no home directory is known");
    } else if (is_path && how.empty()) {
      names.push_back(expand_home(node.text));
    } else {
      faults.push_back(place_of_include(layer) +
                       ": expected the path of a config or a list of them" +
                       (how.empty() ? "" : ", " + how) + ", got " + node.shown());
    }
  };
  if (include->items.size() > kMostIncludes) {
    faults.push_back(place_of_include(layer) + ": expected at most " + format_count(kMostIncludes) +
                     " files, got " + format_count(std::ssize(include->items)));
  } else if (include->kind == Kind::list) {
    std::for_each(include->items.begin(), include->items.end(), add);
  } else {
    add(*include);
  }
  return names;
}

class Collector {
 public:
  explicit Collector(std::vector<std::string>& faults) : faults_(faults) {}

  std::vector<ConfigLayer> collect(const fs::path& file) {
    place(read(file, 1, ""));
    std::reverse(layers_.begin(), layers_.end());
    return std::move(layers_);
  }

 private:
  struct File {
    std::optional<ConfigLayer> layer;  // none where it could not be read
    std::vector<File*> includes;
    std::size_t chain = 1;  // files of the longest chain from here
    bool is_open = true;    // until all that it includes is read
    bool is_placed = false;
  };

  // Reads the file and what it includes, unless that is done. `depth` counts the files of the chain
  // that leads here, this one too; `wanted_by` stands before the fault where it cannot be read.
  File& read(const fs::path& file, std::size_t depth, const std::string& wanted_by) {
    std::error_code unknown;
    const fs::path absolute = fs::absolute(file).lexically_normal();
    const fs::path resolved = fs::weakly_canonical(absolute, unknown);
    const auto [entry, is_new] = files_.try_emplace(unknown ? absolute : resolved);
    File& read = entry->second;
    if (!is_new) {
      return read;
    }
    const bool streams = is_stream(file);
    try {
      read.layer = parse_layer(read_file(file, kLargestFile), file.string(),
                               streams ? fs::current_path() : absolute.parent_path(), faults_);
    } catch (const UserError& error) {
      faults_.push_back(wanted_by + error.what());
    }
    if (read.layer) {
      for (const std::string& name : included_names(*read.layer, faults_)) {
        include(read, streams ? fs::path(name) : file.parent_path() / name, name, depth);
      }
    }
    read.is_open = false;
    return read;
  }

  void include(File& by, const fs::path& file, const std::string& name, std::size_t depth) {
    const std::string where = place_of_include(*by.layer) + ": " + printable(name, true);
    File* const included = depth < kLongestChain ? &read(file.lexically_normal(), depth + 1,
                                                         place_of_include(*by.layer) + ": ")
                                                 : nullptr;
    if (included != nullptr && included->is_open) {
      faults_.push_back(where + " includes this file again; expected no cycle");
    } else if (included == nullptr || depth + included->chain > kLongestChain) {
      faults_.push_back(where + " is part of a chain of more than " +
                        std::to_string(kLongestChain) +
                        " files that include the next one; expected a shorter one");
    } else {
      by.includes.push_back(included);
      by.chain = std::max(by.chain, included->chain + 1);
    }
  }

  // Adds the layers from the highest to the lowest. So a file's last place is met first.
  void place(File& file) {
    if (!file.layer || std::exchange(file.is_placed, true)) {
      return;
    }
    layers_.push_back(std::move(*file.layer));
    for (auto included = file.includes.rbegin(); included != file.includes.rend(); ++included) {
      place(**included);
    }
  }

  std::map<fs::path, File> files_;  // by where their links lead
  std::vector<ConfigLayer> layers_;
  std::vector<std::string>& faults_;
};

}  // namespace

std::optional<ConfigLayer> parse_layer(const std::string& text, const std::string& name,
                                       const fs::path& directory,
                                       std::vector<std::string>& faults) {
  try {
    ConfigLayer layer{name, directory, {}, {}};
    layer.root = parse_json(text, name, layer.faults);
    if (layer.root.kind == Kind::object) {
      return layer;
    }
    faults.push_back(name + ": expected an object of sections, got " + layer.root.shown());
  } catch (const UserError& error) {
    faults.insert(faults.end(), error.faults().begin(), error.faults().end());
  }
  return std::nullopt;
}

std::vector<ConfigLayer> collect_files(const fs::path& file, std::vector<std::string>& faults) {
  return Collector(faults).collect(file);
}

bool is_stream(const fs::path& file) {
  const std::string name = file.lexically_normal().string();
  if (name == "/dev/stdin" || name.starts_with("/dev/fd/") || name.starts_with("/proc/")) {
    return true;  // whatever it leads to
  }
  std::error_code unknown;
  const fs::file_status status = fs::status(file, unknown);
  return fs::is_fifo(status) || fs::is_character_file(status) || fs::is_socket(status);
}

}  // namespace transnormer
