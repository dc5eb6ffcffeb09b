// Keys and values that decoding keeps.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "model/context.h"
#include "model/repeatable_state.h"

namespace transnormer {

// A state of growing keys and values; its memory doubles as it fills, up to `limit` tokens, and is
// kept when it is emptied.
class KeyValueCache : public AttentionState, public RepeatableState {
 public:
  explicit KeyValueCache(std::int64_t limit) : limit_(limit) {}

  [[nodiscard]] std::int64_t size() const { return size_; }
  [[nodiscard]] std::int64_t bytes() const override;

  // k: [batch, time, heads, key_dim]; v: [batch, time, heads, value_dim]; at most limit - size()
  // tokens.
  void append(const at::Tensor& k, const at::Tensor& v);
  void clear() { size_ = 0; }
  void repeat(std::int64_t times) override;

  // [batch, size(), heads, key_dim] and [batch, size(), heads, value_dim].
  [[nodiscard]] at::Tensor keys() const { return keys_.narrow(1, 0, size_); }
  [[nodiscard]] at::Tensor values() const { return values_.narrow(1, 0, size_); }

 private:
  void reserve(std::int64_t tokens, const at::Tensor& k, const at::Tensor& v);

  std::int64_t limit_;
  std::int64_t size_ = 0;
  at::Tensor keys_;
  at::Tensor values_;
};

}  // namespace transnormer
