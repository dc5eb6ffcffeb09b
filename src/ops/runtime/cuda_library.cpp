#include "ops/runtime/cuda_library.h"

#include <dlfcn.h>

#include <array>
#include <filesystem>
#include <system_error>

namespace transnormer::ops {
namespace {

constexpr const char* kFileName = "libtransnormer_cuda.so";

const CudaLibrary* loaded = nullptr;
std::filesystem::path loaded_from;

std::string last_error() {
  const char* text = dlerror();
  return text == nullptr ? "unknown reason" : text;
}

}  // namespace

std::string load_cuda_library() {
  if (loaded != nullptr) {
    return {};
  }
  std::error_code failed;
  const std::filesystem::path own = std::filesystem::read_symlink("/proc/self/exe", failed);
  if (failed) {
    return "the executable's folder is not known";
  }
  const std::filesystem::path folder = own.parent_path();
  for (const std::filesystem::path& place :
       std::array{folder, folder.parent_path(), folder.parent_path() / "lib/transnormer"}) {
    const std::filesystem::path file = place / kFileName;
    if (!std::filesystem::exists(file, failed)) {
      continue;
    }
    void* library = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) {
      return last_error();
    }
    using Entry = const CudaLibrary* (*)();
    const auto entry = reinterpret_cast<Entry>(dlsym(library, "transnormer_cuda_library"));
    if (entry == nullptr) {
      return last_error();
    }
    loaded = entry();
    loaded_from = file;
    return {};
  }
  return std::string(kFileName) + " was not built; it needs a CUDA compiler (nvcc)";
}

const std::filesystem::path& cuda_library_file() {
  return loaded_from;
}

const CudaLibrary* cuda_library() {
  return loaded;
}

}  // namespace transnormer::ops
