// A safetensors file, read into the tensors that it lists and into those of a model that may
// differ.
#include <ATen/ATen.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "checkpoint/load_by_name.h"
#include "checkpoint/safetensors.h"
#include "fuzz/fuzzer.h"

namespace {

namespace fuzz = transnormer::fuzz;
using transnormer::InputFile;
using transnormer::NamedTensor;
using transnormer::TensorInfo;

// Tensors as the file lists them; those of types that the program does not write become fp32.
std::vector<NamedTensor> alike(const std::vector<TensorInfo>& listed) {
  constexpr std::int64_t kMost = 1 << 20;
  std::vector<NamedTensor> tensors;
  for (const TensorInfo& info : listed) {
    fuzz::require(std::ranges::all_of(info.shape, [](std::int64_t size) { return size >= 0; }),
                  "a size is a count");
    if (std::ranges::all_of(info.shape, [](std::int64_t size) { return size <= kMost; })) {
      const auto type = info.dtype == "I64" ? at::kLong : at::kFloat;
      tensors.push_back({info.name, at::empty(info.shape, at::dtype(type))});
    }
  }
  return tensors;
}

}  // namespace

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const InputFile file(fuzz::put("model.safetensors", fuzz::bytes_of(data, size)));
  fuzz::reads(
      [&] { transnormer::read_safetensors(file, alike(transnormer::list_safetensors(file))); });
  const std::vector<NamedTensor> model{{"w", at::empty({2, 3})},
                                       {"step", at::empty({1}, at::kLong)}};
  fuzz::reads([&] { transnormer::read_safetensors(file, model); });
  fuzz::reads([&] { static_cast<void>(transnormer::load_by_name(file, model).lines()); });
  return 0;
}
