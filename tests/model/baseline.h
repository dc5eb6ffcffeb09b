// Reads the files that scripts/make_baselines.py and scripts/make_attention_baselines.py write.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <vector>

namespace transnormer::test {

struct BaselineFile {
  std::map<std::string, at::Tensor> tensors;    // by name
  std::map<std::string, std::string> metadata;  // "config", where the file has its own
};

// All of a small safetensors file.
inline BaselineFile read_baseline_file(const std::string& name) {
  const std::string path =
      std::string(TRANSNORMER_SOURCE_DIR) + "/tests/model/baselines/" + name + ".safetensors";
  std::ifstream file(path, std::ios::binary);
  std::uint64_t header_size = 0;
  file.read(reinterpret_cast<char*>(&header_size), sizeof header_size);
  std::string header(header_size, '\0');
  file.read(header.data(), static_cast<std::streamsize>(header.size()));
  if (!file) {
    throw std::runtime_error("cannot read " + path);
  }
  const std::map<std::string, at::ScalarType> types{
      {"F32", at::kFloat}, {"F64", at::kDouble}, {"I64", at::kLong}};
  BaselineFile result;
  const nlohmann::json entries = nlohmann::json::parse(header);
  for (const auto& [key, entry] : entries.items()) {
    if (key == "__metadata__") {
      result.metadata = entry.get<std::map<std::string, std::string>>();
      continue;
    }
    const at::Tensor tensor = at::empty(entry.at("shape").get<std::vector<std::int64_t>>(),
                                        types.at(entry.at("dtype").get<std::string>()));
    const auto begin = entry.at("data_offsets").at(0).get<std::uint64_t>();
    file.seekg(static_cast<std::streamoff>(sizeof header_size + header_size + begin));
    file.read(static_cast<char*>(tensor.data_ptr()), static_cast<std::streamsize>(tensor.nbytes()));
    if (!file) {
      throw std::runtime_error(path + " ends early");
    }
    result.tensors[key] = tensor;
  }
  return result;
}

// Its tensors.
inline std::map<std::string, at::Tensor> read_baseline(const std::string& name) {
  return read_baseline_file(name).tensors;
}

}  // namespace transnormer::test
