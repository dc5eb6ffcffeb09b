// Zeroed floats, aligned for any vector, for a kernel's local buffers.
#pragma once

#include <cstdint>
#include <cstring>
#include <memory>
#include <new>

namespace transnormer::ops {

class Scratch {
 public:
  explicit Scratch(std::int64_t count)
      : data_(static_cast<float*>(
            ::operator new(sizeof(float) * static_cast<std::size_t>(count), kAlignment))) {
    std::memset(data_.get(), 0, sizeof(float) * static_cast<std::size_t>(count));
  }

  [[nodiscard]] float* data() const { return data_.get(); }

 private:
  static constexpr std::align_val_t kAlignment{64};
  struct Release {
    void operator()(float* data) const { ::operator delete(data, kAlignment); }
  };
  std::unique_ptr<float, Release> data_;
};

}  // namespace transnormer::ops
