// Work for a GPU that is recorded once and replayed: one launch in the place of thousands.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>

namespace transnormer::ops {

class CudaGraph {
 public:
  // Whether there is something to record with on this device.
  [[nodiscard]] static bool possible(const at::Device& device);

  // Records what `body` sends to the GPU, without running it. The body must have run before, so
  // that whatever is set up once is there, and must wait for nothing. A replay reads and writes the
  // same memory as the body did: tensors from outside must stay where they are; what the body
  // allocated stays with the recording. Throws what the body throws; nothing is recorded then.
  explicit CudaGraph(const std::function<void()>& body);

  // Sends the work to the current stream once more.
  void replay() const;

 private:
  struct Discard {
    void operator()(void* recording) const;
  };
  std::unique_ptr<void, Discard> recording_;
};

}  // namespace transnormer::ops
