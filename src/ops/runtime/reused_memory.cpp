#include "ops/runtime/reused_memory.h"

#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>

#include <array>
#include <bit>
#include <cstdint>
#include <mutex>
#include <utility>
#include <vector>

namespace transnormer::ops {
namespace {

thread_local std::shared_ptr<ReusedMemory::Pool> in_use;

}  // namespace

class ReusedMemory::Pool {
 public:
  // What a tensor holds while it lives.
  struct Block {
    at::DataPtr data;
    std::size_t size_class;
    std::shared_ptr<Pool> owner;  // while in use
  };

  static at::DataPtr take(const std::shared_ptr<Pool>& pool, std::size_t bytes,
                          c10::Allocator& source) {
    const auto size_class = static_cast<std::size_t>(std::bit_width(bytes - 1));
    std::unique_ptr<Block> block = pool->find(size_class);
    if (!block) {
      block = std::make_unique<Block>(
          Block{source.allocate(std::size_t{1} << size_class), size_class, nullptr});
    }
    block->owner = pool;
    void* const place = block->data.get();
    return {place, block.release(), &give_back, at::Device(at::kCPU)};
  }

 private:
  std::unique_ptr<Block> find(std::size_t size_class) {
    const std::lock_guard lock(mutex_);
    std::vector<std::unique_ptr<Block>>& blocks = free_[size_class];
    if (blocks.empty()) {
      return nullptr;
    }
    std::unique_ptr<Block> block = std::move(blocks.back());
    blocks.pop_back();
    return block;
  }

  static void give_back(void* context) {
    std::unique_ptr<Block> block(static_cast<Block*>(context));
    const std::shared_ptr<Pool> owner = std::move(block->owner);
    const std::lock_guard lock(owner->mutex_);
    owner->free_[block->size_class].push_back(std::move(block));
  }

  std::mutex mutex_;
  std::array<std::vector<std::unique_ptr<Block>>, 65> free_;  // by the size's logarithm
};

namespace {

// Stands before LibTorch's own allocator.
class PoolAllocator : public c10::Allocator {
 public:
  explicit PoolAllocator(c10::Allocator& source) : source_(source) {}

  at::DataPtr allocate(std::size_t bytes) override {
    return in_use && bytes > 0 ? ReusedMemory::Pool::take(in_use, bytes, source_)
                               : source_.allocate(bytes);
  }
  void copy_data(void* to, const void* from, std::size_t bytes) const override {
    source_.copy_data(to, from, bytes);
  }
  [[nodiscard]] at::DeleterFnPtr raw_deleter() const override { return source_.raw_deleter(); }

 private:
  c10::Allocator& source_;
};

// For the rest of the process; never destroyed, since tensors may outlive everything.
void install() {
  static auto* const installed = [] {
    auto* made = new PoolAllocator(*c10::GetCPUAllocator());
    c10::SetCPUAllocator(made, /*priority=*/1);
    return made;
  }();
  static_cast<void>(installed);
}

}  // namespace

ReusedMemory::ReusedMemory() : pool_(std::make_shared<Pool>()) {
  install();
}

ReusedMemory::Use::Use(const ReusedMemory& memory) : former_(std::exchange(in_use, memory.pool_)) {}

ReusedMemory::Use::~Use() {
  in_use = std::move(former_);
}

}  // namespace transnormer::ops
