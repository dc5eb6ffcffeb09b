#include "checkpoint/safetensors.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <bit>
#include <map>
#include <set>
#include <sstream>
#include <stdexcept>

#include "checkpoint/safetensors_header.h"
#include "config/json_tree.h"
#include "util/error.h"
#include "util/file.h"
#include "util/hash.h"

namespace transnormer {
namespace {

static_assert(std::endian::native == std::endian::little, "safetensors are little-endian");

// Floating-point numbers are always stored in single precision.
at::ScalarType stored_type(const at::Tensor& tensor) {
  return tensor.is_floating_point() ? at::kFloat : tensor.scalar_type();
}

std::string dtype_name(at::ScalarType type) {
  switch (type) {
    case at::kFloat:
      return "F32";
    case at::kLong:
      return "I64";
    default:
      throw std::invalid_argument(std::string("no safetensors type for ") + c10::toString(type));
  }
}

std::vector<TensorEntry> lay_out(const std::vector<NamedTensor>& tensors) {
  std::vector<TensorEntry> entries;
  std::size_t place = 0;
  for (const NamedTensor& named : tensors) {
    const at::ScalarType type = stored_type(named.tensor);
    TensorEntry entry;
    entry.name = named.name;
    entry.dtype = dtype_name(type);
    entry.shape = named.tensor.sizes().vec();
    entry.begin = place;
    place += static_cast<std::size_t>(named.tensor.numel()) * c10::elementSize(type);
    entry.end = place;
    entries.push_back(entry);
  }
  return entries;
}

void check_fits(const TensorEntry& entry, const NamedTensor& wanted, const std::string& file) {
  if (at::IntArrayRef(entry.shape) != wanted.tensor.sizes()) {
    throw UserError(file + ": tensor " + entry.name + " has the shape " + shape_text(entry.shape) +
                    ", expected " + shape_text(wanted.tensor.sizes()));
  }
  const std::string expected = dtype_name(stored_type(wanted.tensor));
  if (entry.dtype != expected) {
    throw UserError(file + ": tensor " + entry.name + " holds numbers of type " + entry.dtype +
                    ", expected " + expected);
  }
}

// Straight into the tensor's memory where it lies there as it does in the file.
void read_tensor(const InputFile& file, std::size_t begin, const at::Tensor& tensor) {
  const at::ScalarType type = stored_type(tensor);
  const bool as_stored = tensor.is_cpu() && tensor.is_contiguous() && tensor.scalar_type() == type;
  const at::Tensor stored = as_stored ? tensor : at::empty(tensor.sizes(), at::dtype(type));
  file.read_at(static_cast<std::int64_t>(begin), stored.data_ptr(), stored.nbytes());
  if (as_stored) {
    torch::autograd::impl::bump_version(tensor);  // writing through a pointer does not
  } else {
    tensor.copy_(stored);
  }
}

// "tensor a", "tensors a, b and 7 more".
std::string name_some(const std::vector<std::string>& names) {
  constexpr std::size_t kMost = 5;
  std::string text = names.size() > 1 ? "tensors " : "tensor ";
  for (std::size_t i = 0; i < std::min(kMost, names.size()); ++i) {
    text += (i > 0 ? ", " : "") + printable(names[i], false);
  }
  if (names.size() > kMost) {
    text += " and " + std::to_string(names.size() - kMost) + " more";
  }
  return text;
}

}  // namespace

std::string shape_text(at::IntArrayRef shape) {
  std::ostringstream text;
  text << shape;
  return text.str();
}

std::string write_safetensors(const std::filesystem::path& path,
                              const std::vector<NamedTensor>& tensors) {
  const c10::NoGradGuard no_gradients;
  FileWriter writer(path);
  Sha256 hash;
  const auto write = [&](const void* data, std::size_t size) {
    writer.write(data, size);
    hash.update(data, size);
  };
  const std::string header = format_tensor_table(lay_out(tensors));
  write(header.data(), header.size());
  for (const NamedTensor& named : tensors) {
    const at::Tensor tensor =
        named.tensor.detach().to(at::kCPU, stored_type(named.tensor)).contiguous();
    write(tensor.const_data_ptr(), tensor.nbytes());
  }
  writer.finish();
  return hash.hex();
}

void require_names(const InputFile& file, const std::vector<std::string>& names) {
  std::set<std::string> saved;
  for (const TensorInfo& tensor : list_safetensors(file)) {
    saved.insert(tensor.name);
  }
  std::vector<std::string> missing;
  for (const std::string& name : names) {
    if (saved.erase(name) == 0) {
      missing.push_back(name);
    }
  }
  std::string fault;
  if (!missing.empty()) {
    fault = name_some(missing) + (missing.size() > 1 ? " are missing" : " is missing");
  }
  if (!saved.empty()) {
    fault += (fault.empty() ? "" : "; ") + name_some({saved.begin(), saved.end()}) +
             (saved.size() > 1 ? " have" : " has") + " no place here";
  }
  if (!fault.empty()) {
    throw UserError(file.path().string() + ": " + fault);
  }
}

void read_safetensors(const InputFile& file, const std::vector<NamedTensor>& tensors) {
  std::vector<std::string> names;
  for (const NamedTensor& wanted : tensors) {
    names.push_back(wanted.name);
  }
  require_names(file, names);
  read_named_safetensors(file, tensors);
}

void read_named_safetensors(const InputFile& file, const std::vector<NamedTensor>& tensors) {
  const c10::NoGradGuard no_gradients;
  const std::string name = file.path().string();
  const TensorTable table = read_tensor_table(file);
  std::map<std::string, const TensorEntry*> by_name;
  for (const TensorEntry& entry : table.entries) {
    by_name[entry.name] = &entry;
  }
  for (const NamedTensor& wanted : tensors) {
    check_fits(*by_name.at(wanted.name), wanted, name);
  }
  for (const NamedTensor& wanted : tensors) {
    const TensorEntry& entry = *by_name.at(wanted.name);
    read_tensor(file, table.data_begin + entry.begin, wanted.tensor.detach());
  }
}

std::vector<TensorInfo> list_safetensors(const InputFile& file) {
  std::vector<TensorInfo> tensors;
  for (TensorEntry& entry : read_tensor_table(file).entries) {
    tensors.push_back({std::move(entry.name), std::move(entry.dtype), std::move(entry.shape)});
  }
  return tensors;
}

}  // namespace transnormer
