// Floats aligned for any vector, for a kernel's local buffers.
#pragma once

#include <cstdint>
#include <memory>
#include <new>

namespace transnormer::ops {

// Of any values. A thread keeps the memory for its next one, so that no call waits for new pages.
class Scratch {
 public:
  explicit Scratch(std::int64_t count);
  ~Scratch();
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

  [[nodiscard]] float* data() const { return memory_.data.get(); }

 private:
  static constexpr std::align_val_t kAlignment{64};
  struct Release {
    void operator()(float* data) const { ::operator delete(data, kAlignment); }
  };
  struct Memory {
    std::unique_ptr<float, Release> data;
    std::int64_t size = 0;
  };

  static Memory& kept();

  Memory memory_;
};

}  // namespace transnormer::ops
