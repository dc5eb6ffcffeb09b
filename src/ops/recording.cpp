#include "ops/recording.h"

#include "ops/cuda_library.h"

namespace transnormer::ops {

bool Recording::possible(const at::Device& device) {
  return device.is_cuda() && cuda_library() != nullptr;
}

Recording::Recording(const std::function<void()>& body)
    : recording_(cuda_library()->record(
          [](void* given) { (*static_cast<const std::function<void()>*>(given))(); },
          const_cast<void*>(static_cast<const void*>(&body)))) {}

void Recording::replay() const {
  cuda_library()->replay(recording_.get());
}

void Recording::Discard::operator()(void* recording) const {
  cuda_library()->discard(recording);
}

}  // namespace transnormer::ops
