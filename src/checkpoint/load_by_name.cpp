#include "checkpoint/load_by_name.h"

#include <algorithm>
#include <map>
#include <optional>
#include <string_view>

#include "checkpoint/safetensors.h"
#include "config/json_tree.h"
#include "util/units.h"

namespace transnormer {
namespace {

constexpr std::size_t kNamesShown = 6;

// A tensor of layers that has the same name in each, "layers.0-5.attn_norm.weight", or one alone.
struct Group {
  std::string before = {};  // "layers."
  std::string layers = {};  // "0-5"
  std::string after = {};   // ".attn_norm.weight", with the sizes
  std::int64_t last = 0;

  [[nodiscard]] std::string text() const { return before + layers + after; }
};

// "layers.12.attn_norm.weight" in its parts; all of it in `before` where it is no layer's.
Group split(const std::string& name) {
  constexpr std::string_view kLayers = "layers.";
  const std::size_t begin = kLayers.size();
  const std::size_t dot = name.find('.', begin);
  if (!name.starts_with(kLayers) || dot == std::string::npos) {
    return {.before = name};
  }
  const std::string number = name.substr(begin, dot - begin);
  const std::optional<std::int64_t> layer = parse_integer(number);
  return layer ? Group{std::string(kLayers), number, name.substr(dot), *layer}
               : Group{.before = name};
}

// Neighbouring layers are one group, wherever they stand in the list.
std::vector<Group> grouped(const std::vector<std::string>& names) {
  std::vector<Group> groups;
  for (const std::string& name : names) {
    const Group next = split(name);
    const auto same = std::find_if(groups.begin(), groups.end(), [&next](const Group& group) {
      return !next.layers.empty() && group.before == next.before && group.after == next.after &&
             group.last + 1 == next.last;
    });
    if (same == groups.end()) {
      groups.push_back(next);
    } else {
      same->last = next.last;
      same->layers = same->layers.substr(0, same->layers.find('-')) + '-' + next.layers;
    }
  }
  return groups;
}

std::string count_and_names(const std::string& what, const std::vector<std::string>& names) {
  std::string text =
      what + ": " + format_count(std::ssize(names)) + (names.size() == 1 ? " tensor" : " tensors");
  const std::vector<Group> groups = grouped(names);
  for (std::size_t i = 0; i < std::min(groups.size(), kNamesShown); ++i) {
    text += (i == 0 ? ": " : ", ") + groups[i].text();
  }
  return text + (groups.size() > kNamesShown ? ", .." : "");
}

}  // namespace

std::vector<std::string> LoadReport::lines() const {
  std::vector<std::string> lines;
  const auto add = [&lines](const std::string& what, const std::vector<std::string>& names) {
    if (!names.empty()) {
      lines.push_back(count_and_names(what, names));
    }
  };
  add("taken", taken);
  add("new, not in the checkpoint", fresh);
  std::vector<std::string> differences;
  for (const ResizedTensor& tensor : resized) {
    differences.push_back(tensor.name + " (" + shape_text(tensor.saved) + " there, " +
                          shape_text(tensor.here) + " here)");
  }
  add("new, of other sizes than in the checkpoint", differences);
  std::vector<std::string> strangers;
  for (const std::string& name : left) {
    strangers.push_back(printable(name, false));
  }
  add("left, without a place in this model", strangers);
  return lines;
}

LoadReport load_by_name(const InputFile& file, const std::vector<NamedTensor>& tensors) {
  const std::vector<TensorInfo> saved = list_safetensors(file);
  std::map<std::string, const TensorInfo*> by_name;
  for (const TensorInfo& tensor : saved) {
    by_name[tensor.name] = &tensor;
  }
  LoadReport report;
  std::vector<NamedTensor> common;
  for (const NamedTensor& here : tensors) {
    const auto found = by_name.find(here.name);
    if (found == by_name.end()) {
      report.fresh.push_back(here.name);
      continue;
    }
    const std::vector<std::int64_t>& shape = found->second->shape;
    if (here.tensor.sizes() == at::IntArrayRef(shape)) {
      report.taken.push_back(here.name);
      common.push_back(here);
    } else {
      report.resized.push_back({here.name, shape, here.tensor.sizes().vec()});
    }
    by_name.erase(found);
  }
  for (const TensorInfo& tensor : saved) {
    if (by_name.contains(tensor.name)) {
      report.left.push_back(tensor.name);
    }
  }
  read_named_safetensors(file, common);
  return report;
}

}  // namespace transnormer
