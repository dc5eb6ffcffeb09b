// Work for a GPU that is captured once and replayed: one launch in the place of thousands.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>

namespace transnormer::ops {

class CudaGraph {
 public:
  // Whether this device has CUDA graphs, and they are wanted.
  [[nodiscard]] static bool possible(const at::Device& device);

  // Captures what `body` sends to the GPU, without running it. The body must have run before, so
  // that whatever is set up once is there, and must wait for nothing. A replay reads and writes the
  // same memory as the body did: tensors from outside must stay where they are; what the body
  // allocated stays with the graph. Throws what the body throws; nothing is captured then.
  explicit CudaGraph(const std::function<void()>& body);

  // Sends the work to the current stream once more.
  void replay() const;

 private:
  struct Discard {
    void operator()(void* graph) const;
  };
  std::unique_ptr<void, Discard> graph_;
};

}  // namespace transnormer::ops
