// Loads what two models have in common: the body of a checkpoint into a model with another head,
// vocabulary or number of layers.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "model/weights.h"
#include "util/input_file.h"

namespace transnormer {

// A tensor that both have, in other sizes.
struct ResizedTensor {
  std::string name;
  std::vector<std::int64_t> saved;
  std::vector<std::int64_t> here;
};

// What became of each tensor of the model and of the file, frozen ones too: each stands in one of
// these lists, in the order of the model, or of the file for those left.
struct LoadReport {
  std::vector<std::string> taken;      // the model has the saved values now
  std::vector<std::string> fresh;      // only the model has it: as it was before
  std::vector<std::string> left;       // only the file has it
  std::vector<ResizedTensor> resized;  // as it was before, and the saved values are left

  // For people: "taken: 26 tensors: embed.weight, layers.0-5.attn.q_proj.weight, ..", a line for
  // each list that is not empty, of the first names; layers are told together, and sizes.
  [[nodiscard]] std::vector<std::string> lines() const;
};

// Copies those tensors of a safetensors file into the model's that have the same name and sizes.
// Throws UserError where the file makes no sense, or a tensor of another type of numbers.
LoadReport load_by_name(const InputFile& file, const std::vector<NamedTensor>& tensors);

}  // namespace transnormer
