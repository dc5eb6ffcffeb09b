#include "model/attention/key_value_cache.h"

#include <ATen/ATen.h>

#include <algorithm>

namespace transnormer {
namespace {

constexpr std::int64_t kLeastTokens = 16;

}  // namespace

std::int64_t KeyValueCache::bytes() const {
  return keys_.defined() ? static_cast<std::int64_t>(keys_.nbytes() + values_.nbytes()) : 0;
}

void KeyValueCache::reserve(std::int64_t tokens, const at::Tensor& k, const at::Tensor& v) {
  const std::int64_t capacity = keys_.defined() ? keys_.size(1) : 0;
  if (tokens <= capacity) {
    return;
  }
  const std::int64_t wanted = std::min(limit_, std::max({tokens, 2 * capacity, kLeastTokens}));
  const auto grown = [&](const at::Tensor& old, const at::Tensor& like) {
    at::Tensor larger =
        at::empty({like.size(0), wanted, like.size(2), like.size(3)}, like.options());
    if (size_ > 0) {
      larger.narrow(1, 0, size_).copy_(old.narrow(1, 0, size_));
    }
    return larger;
  };
  keys_ = grown(keys_, k);
  values_ = grown(values_, v);
}

void KeyValueCache::repeat(std::int64_t times) {
  repeat_row(keys_, times);
  repeat_row(values_, times);
}

void KeyValueCache::append(const at::Tensor& k, const at::Tensor& v) {
  const std::int64_t time = k.size(1);
  reserve(size_ + time, k, v);
  keys_.narrow(1, size_, time).copy_(k);
  values_.narrow(1, size_, time).copy_(v);
  size_ += time;
}

}  // namespace transnormer
