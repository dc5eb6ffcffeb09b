#include "ops/runtime/scratch.h"

#include <utility>

namespace transnormer::ops {

Scratch::Memory& Scratch::kept() {
  thread_local Memory memory;
  return memory;
}

Scratch::Scratch(std::int64_t count) : memory_(std::exchange(kept(), {})) {
  if (memory_.size < count) {
    memory_.data.reset();
    memory_.data.reset(static_cast<float*>(
        ::operator new(sizeof(float) * static_cast<std::size_t>(count), kAlignment)));
    memory_.size = count;
  }
}

Scratch::~Scratch() {
  if (kept().size < memory_.size) {
    kept() = std::move(memory_);
  }
}

}  // namespace transnormer::ops
