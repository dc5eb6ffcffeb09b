#include "ops/runtime/reused_memory.h"

#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>

#include <array>
#include <bit>
#include <cstdint>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <utility>
#include <vector>

namespace transnormer::ops {
namespace {

thread_local std::shared_ptr<ReusedMemory::Pool> in_use;

}  // namespace

class ReusedMemory::Pool {
 public:
  Pool() = default;
  ~Pool();
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;

  // What a tensor holds while it lives.
  struct Block {
    at::DataPtr data;
    std::size_t size_class;
    std::shared_ptr<Pool> owner;  // while in use
  };

  static at::DataPtr take(const std::shared_ptr<Pool>& pool, std::size_t bytes,
                          c10::Allocator& source);
  // False where the memory is no pool's.
  static bool give_back(void* place);

 private:
  std::unique_ptr<Block> find(std::size_t size_class);

  std::mutex mutex_;
  std::array<std::vector<std::unique_ptr<Block>>, 65> free_;  // by the size's logarithm
};

namespace {

// Every block by its place: who frees memory knows that alone. LibTorch demands it of allocators
// where a library takes memory without a tensor (c10::Allocator::raw_allocate).
class Blocks {
 public:
  using Block = ReusedMemory::Pool::Block;

  void add(Block* block) {
    const std::lock_guard lock(mutex_);
    by_place_[block->data.get()] = block;
  }
  void remove(const void* place) {
    const std::lock_guard lock(mutex_);
    by_place_.erase(place);
  }
  [[nodiscard]] Block* find(const void* place) {
    const std::lock_guard lock(mutex_);
    const auto found = by_place_.find(place);
    return found == by_place_.end() ? nullptr : found->second;
  }

 private:
  std::mutex mutex_;
  std::unordered_map<const void*, Block*> by_place_;
};

// Never destroyed, since tensors may outlive everything.
Blocks& blocks() {
  static auto* const made = new Blocks;
  return *made;
}

}  // namespace

ReusedMemory::Pool::~Pool() {
  for (const auto& of_a_size : free_) {
    for (const std::unique_ptr<Block>& block : of_a_size) {
      blocks().remove(block->data.get());
    }
  }
}

at::DataPtr ReusedMemory::Pool::take(const std::shared_ptr<Pool>& pool, std::size_t bytes,
                                     c10::Allocator& source) {
  const auto size_class = static_cast<std::size_t>(std::bit_width(bytes - 1));
  std::unique_ptr<Block> block = pool->find(size_class);
  if (!block) {
    block = std::make_unique<Block>(
        Block{source.allocate(std::size_t{1} << size_class), size_class, nullptr});
    blocks().add(block.get());
  }
  block->owner = pool;
  void* const place = block.release()->data.get();
  return {place, place, [](void* taken) { give_back(taken); }, at::Device(at::kCPU)};
}

std::unique_ptr<ReusedMemory::Pool::Block> ReusedMemory::Pool::find(std::size_t size_class) {
  const std::lock_guard lock(mutex_);
  std::vector<std::unique_ptr<Block>>& of_this_size = free_[size_class];
  if (of_this_size.empty()) {
    return nullptr;
  }
  std::unique_ptr<Block> block = std::move(of_this_size.back());
  of_this_size.pop_back();
  return block;
}

bool ReusedMemory::Pool::give_back(void* place) {
  std::unique_ptr<Block> block(blocks().find(place));
  if (!block) {
    return false;
  }
  const std::shared_ptr<Pool> owner = std::move(block->owner);
  const std::lock_guard lock(owner->mutex_);
  owner->free_[block->size_class].push_back(std::move(block));
  return true;
}

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
  [[nodiscard]] at::DeleterFnPtr raw_deleter() const override;

 private:
  c10::Allocator& source_;
};

c10::Allocator& first_allocator() {
  static c10::Allocator& found = *c10::GetCPUAllocator();
  return found;
}

// Of memory that was taken without a tensor, in use or not.
void release(void* place) {
  if (!ReusedMemory::Pool::give_back(place)) {
    first_allocator().raw_deleter()(place);
  }
}

at::DeleterFnPtr PoolAllocator::raw_deleter() const {
  return &release;
}

// For the rest of the process; never destroyed, since tensors may outlive everything.
void install() {
  static auto* const installed = [] {
    auto* made = new PoolAllocator(first_allocator());
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
