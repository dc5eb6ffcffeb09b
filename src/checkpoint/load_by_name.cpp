#include "checkpoint/load_by_name.h"

#include <map>

#include "checkpoint/safetensors.h"
#include "config/json_tree.h"
#include "util/units.h"

namespace transnormer {
namespace {

std::string count_and_names(const std::string& what, const std::vector<std::string>& names) {
  std::string text =
      what + ": " + format_count(std::ssize(names)) + (names.size() == 1 ? " tensor" : " tensors");
  for (std::size_t i = 0; i < names.size(); ++i) {
    text += (i == 0 ? ": " : ", ") + names[i];
  }
  return text;
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
