#include "ops/runtime/cuda_graph.h"

#include "ops/runtime/cuda_library.h"
#include "ops/runtime/operator_choices.h"

namespace transnormer::ops {

bool CudaGraph::possible(const at::Device& device) {
  return device.is_cuda() && cuda_library() != nullptr && operator_choices().graphs;
}

CudaGraph::CudaGraph(const std::function<void()>& body)
    : graph_(cuda_library()->capture(
          [](void* given) { (*static_cast<const std::function<void()>*>(given))(); },
          const_cast<void*>(static_cast<const void*>(&body)))) {}

void CudaGraph::replay() const {
  cuda_library()->replay(graph_.get());
}

void CudaGraph::Discard::operator()(void* graph) const {
  cuda_library()->discard(graph);
}

}  // namespace transnormer::ops
