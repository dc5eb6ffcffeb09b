#include "ops/runtime/cuda_graph.h"

#include "ops/runtime/cuda_library.h"
#include "ops/runtime/operator_choices.h"

namespace transnormer::ops {

bool CudaGraph::possible(const at::Device& device) {
  return device.is_cuda() && cuda_library() != nullptr && operator_choices().graphs;
}

CudaGraph::CudaGraph(const std::function<void()>& body)
    : recording_(cuda_library()->record(
          [](void* given) { (*static_cast<const std::function<void()>*>(given))(); },
          const_cast<void*>(static_cast<const void*>(&body)))) {}

void CudaGraph::replay() const {
  cuda_library()->replay(recording_.get());
}

void CudaGraph::Discard::operator()(void* recording) const {
  cuda_library()->discard(recording);
}

}  // namespace transnormer::ops
