// LibTorch's collectives behind a group.
#pragma once

#include <chrono>
#include <memory>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

namespace transnormer::dist {

struct Engine {
  c10::intrusive_ptr<c10d::Backend> backend;  // for tensors on the CPU
  std::shared_ptr<Engine> of_device = {};     // for those of a GPU, where there is one

  [[nodiscard]] c10d::Backend& backend_for(const at::Tensor& tensor) const {
    return tensor.is_cpu() || !of_device ? *backend : *of_device->backend;
  }
};

// What an engine is made from.
struct EngineRequest {
  c10::intrusive_ptr<c10d::Store> store;  // where the group meets, under keys of its own
  int rank = 0;
  int size = 1;
  std::chrono::milliseconds timeout{};
};

}  // namespace transnormer::dist
