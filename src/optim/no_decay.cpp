#include "optim/no_decay.h"

#include <fnmatch.h>

#include <algorithm>
#include <optional>
#include <sstream>

#include "config/json_tree.h"
#include "config/listing.h"

namespace transnormer {
namespace {

bool matches(const std::string& glob, const std::string& name) {
  return ::fnmatch(glob.c_str(), name.c_str(), 0) == 0;
}

std::vector<std::string> dotted_parts(const std::string& name) {
  std::vector<std::string> parts;
  std::istringstream stream(name);
  for (std::string part; std::getline(stream, part, '.');) {
    parts.push_back(part);
  }
  return parts;
}

// `did you mean "bias"?` for a part of the glob that no name has.
std::string guess(const std::string& glob, const std::vector<NamedTensor>& parameters) {
  std::vector<std::string> known;
  for (const NamedTensor& parameter : parameters) {
    for (const std::string& part : dotted_parts(parameter.name)) {
      if (std::ranges::find(known, part) == known.end()) {
        known.push_back(part);
      }
    }
  }
  for (std::string part : dotted_parts(glob)) {
    std::erase(part, '*');
    if (std::ranges::find(known, part) != known.end()) {
      continue;
    }
    if (const std::optional<std::string> meant = nearest(part, known)) {
      return "did you mean \"" + *meant + "\"? ";
    }
  }
  return "";
}

}  // namespace

bool is_without_decay(const std::string& name, const std::vector<std::string>& globs) {
  return std::ranges::any_of(globs, [&](const std::string& glob) { return matches(glob, name); });
}

std::vector<std::string> idle_globs(const std::vector<std::string>& globs,
                                    const std::vector<NamedTensor>& parameters) {
  std::vector<std::string> lines;
  for (const std::string& glob : globs) {
    const bool is_idle = std::ranges::none_of(
        parameters, [&](const NamedTensor& parameter) { return matches(glob, parameter.name); });
    if (is_idle) {
      lines.push_back("optimizer.no_decay: " + printable(glob, true) +
                      " matches no parameter of this model; " + guess(glob, parameters) +
                      "`transnormer inspect` lists their names");
    }
  }
  return lines;
}

}  // namespace transnormer
