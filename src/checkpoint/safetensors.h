// The safetensors format: an 8-byte little-endian header size, a JSON header, then the tensors.
#pragma once

#include <ATen/core/Tensor.h>

#include <filesystem>
#include <string>
#include <vector>

#include "model/transnormer.h"
#include "model/weights.h"
#include "util/input_file.h"

namespace transnormer {

// Writes fp32 tensors (any device) in the order given, with no dates or paths, and flushes. The
// same tensors give the same bytes. Returns the SHA-256 of the file. Throws WriteError.
std::string write_safetensors(const std::filesystem::path& path,
                              const std::vector<NamedTensor>& tensors);

// Copies the file's tensors into `tensors`, which must have the same names, in any order, and the
// same shapes. Throws UserError that names the tensors that one of them lacks, or the first of
// another shape; nothing is changed then.
void read_safetensors(const InputFile& file, const std::vector<NamedTensor>& tensors);

// The first half of that: throws UserError where the file does not hold just these names.
void require_names(const InputFile& file, const std::vector<std::string>& names);

// The same of a file that holds these tensors, and perhaps others. Throws std::out_of_range where
// it does not.
void read_named_safetensors(const InputFile& file, const std::vector<NamedTensor>& tensors);

// "[2, 3]".
[[nodiscard]] std::string shape_text(at::IntArrayRef shape);

struct TensorInfo {
  std::string name;
  std::string dtype;
  std::vector<std::int64_t> shape;
};
[[nodiscard]] std::vector<TensorInfo> list_safetensors(const InputFile& file);

}  // namespace transnormer
