// Memory that the tensors of one step leave to those of the next, so that a step that is like the
// one before asks the system for none.
#pragma once

#include <memory>

namespace transnormer::ops {

class ReusedMemory {
 public:
  class Pool;

  ReusedMemory();

  // While one lives, tensors that this thread makes on the CPU take memory from `memory`, and give
  // it back there when they go, whenever that is. Sizes are rounded up to powers of two. Behind one
  // that lived within another's time, the other goes on.
  class Use {
   public:
    explicit Use(const ReusedMemory& memory);
    ~Use();
    Use(const Use&) = delete;
    Use& operator=(const Use&) = delete;

   private:
    std::shared_ptr<Pool> former_;
  };

 private:
  std::shared_ptr<Pool> pool_;
};

}  // namespace transnormer::ops
