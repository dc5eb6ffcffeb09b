// The JSON header of a safetensors file. Internal to src/checkpoint.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "util/input_file.h"

namespace transnormer {

struct TensorEntry {
  std::string name;
  std::string dtype;  // "F32", "I64", ..
  std::vector<std::int64_t> shape;
  std::size_t begin = 0;  // of its bytes, counted from the end of the header
  std::size_t end = 0;
};

struct TensorTable {
  std::vector<TensorEntry> entries;  // in the order of their bytes
  std::size_t data_begin = 0;        // in the file
};

// The header with its size before it, padded so that the tensors begin at a multiple of 8 bytes.
[[nodiscard]] std::string format_tensor_table(const std::vector<TensorEntry>& entries);

// Reads a file's header, and checks that the tensors fill the rest without gap or overlap. Throws
// UserError.
[[nodiscard]] TensorTable read_tensor_table(const InputFile& file);

}  // namespace transnormer
