// The parts of transformer_ls: cuts into blocks, its norms, its distances, its state.
#pragma once

#include <ATen/ATen.h>
#include <torch/nn/module.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "model/attention/attention.h"
#include "model/attention/key_value_cache.h"
#include "model/initializer.h"
#include "ops/norm.h"

namespace transnormer::long_short {

inline constexpr double kStd = 0.02;
inline constexpr double kNormEps = 1e-5;

inline at::Tensor heads_first(const at::Tensor& x) {
  return x.to(at::kFloat).transpose(1, 2);
}

// [rows, heads, time, dim] with zeros behind the end, up to `time`.
inline at::Tensor up_to(const at::Tensor& x, std::int64_t time) {
  return x.size(2) == time ? x : at::constant_pad_nd(x, {0, 0, 0, time - x.size(2)});
}

inline std::int64_t parts_of(std::int64_t count, std::int64_t length) {
  return (count + length - 1) / length;
}

// x: [rows, heads, blocks * length, dim] -> [rows, heads, blocks, left + length + right, dim]: each
// block with its neighbours' last `left` and first `right` places, zero where there is none.
inline at::Tensor around_blocks(const at::Tensor& x, std::int64_t length, std::int64_t left,
                                std::int64_t right) {
  const at::Tensor own = x.reshape({x.size(0), x.size(1), -1, length, x.size(3)});
  const std::int64_t blocks = own.size(2);
  std::vector<at::Tensor> parts;
  if (left > 0) {
    parts.push_back(at::constant_pad_nd(own.narrow(3, length - left, left), {0, 0, 0, 0, 1, 0})
                        .narrow(2, 0, blocks));
  }
  parts.push_back(own);
  if (right > 0) {
    parts.push_back(
        at::constant_pad_nd(own.narrow(3, 0, right), {0, 0, 0, 0, 0, 1}).narrow(2, 1, blocks));
  }
  return at::cat(parts, 3);
}

// A LayerNorm whose gain starts as N(1, 0.02).
class NearlyUnitNorm : public torch::nn::Module, public Initializable {
 public:
  NearlyUnitNorm(std::int64_t dim, at::Device device)
      : weight_(register_parameter("weight", at::empty({dim}, at::device(device)))),
        bias_(register_parameter("bias", at::empty({dim}, at::device(device)))) {}

  // x: [rows, time, heads, head_dim], normed over all heads -> fp32 [rows, heads, time, head_dim].
  [[nodiscard]] at::Tensor forward(const at::Tensor& x) const {
    return ops::layer_norm(x.flatten(2), weight_, bias_, kNormEps, at::kFloat)
        .view(x.sizes())
        .transpose(1, 2);
  }
  void initialize(const Initializer& initializer, const std::string& prefix) override {
    const at::NoGradGuard no_gradients;
    initializer.normal(weight_, prefix + "weight", kStd);
    weight_.add_(1);
    bias_.zero_();
  }

 private:
  at::Tensor weight_;
  at::Tensor bias_;
};

// A learned vector of each head for each distance. No Linear, since it is applied once a distance
// and not once a token.
class Distances : public torch::nn::Module, public Initializable {
 public:
  Distances(std::int64_t dim, std::int64_t heads, at::Device device)
      : dim_(dim),
        heads_(heads),
        weight_(register_parameter("weight", at::empty({dim, dim}, at::device(device)))),
        bias_(register_parameter("bias", at::empty({dim}, at::device(device)))) {}

  // Of [first, first + count), fp32 [heads, count, head_dim]; angles are formed in double.
  [[nodiscard]] at::Tensor forward(std::int64_t first, std::int64_t count) const {
    const auto doubles = weight_.options().dtype(at::kDouble);
    const auto dim = static_cast<double>(dim_);
    const at::Tensor angle = at::arange(first, first + count, doubles).unsqueeze(1) *
                             at::exp(at::arange(dim_ / 2, doubles) * (-2 * std::log(1e4) / dim));
    at::Tensor table = at::cat({at::sin(angle), at::cos(angle)}, 1).to(at::kFloat);
    if (dim_ % 2 != 0) {
      table = at::constant_pad_nd(table, {0, 1});
    }
    return at::linear(table, weight_, bias_).view({count, heads_, -1}).transpose(0, 1);
  }
  void initialize(const Initializer& initializer, const std::string& prefix) override {
    const at::NoGradGuard no_gradients;
    initializer.normal(weight_, prefix + "weight", kStd);
    bias_.zero_();
  }

 private:
  std::int64_t dim_;
  std::int64_t heads_;
  at::Tensor weight_;
  at::Tensor bias_;
};

// The window's keys and values, the open chunk's own with the logits of their weights, and the
// summaries of closed chunks; the vectors of distances, which a pass over a sequence makes once.
struct LongShortState : AttentionState, RepeatableState {
  [[nodiscard]] std::int64_t bytes() const override {
    std::int64_t sum = summaries.bytes();
    for (const at::Tensor& x : {window_k, window_v, open_k, open_v, open_logits, near, far}) {
      sum += x.defined() ? static_cast<std::int64_t>(x.nbytes()) : 0;
    }
    return sum;
  }
  void repeat(std::int64_t times) override {
    for (at::Tensor* const x : {&window_k, &window_v, &open_k, &open_v, &open_logits}) {
      repeat_row(*x, times);
    }
    summaries.repeat(times);
  }
  std::int64_t tokens = 0;
  at::Tensor window_k, window_v;           // fp32 [batch, heads, up to window - 1, head_dim]
  at::Tensor open_k, open_v, open_logits;  // [batch, fewer than chunk, heads, head_dim or rank]
  at::Tensor near, far;                    // R and Rc, [heads, distances, head_dim]
  // Of rank a chunk.
  KeyValueCache summaries{std::numeric_limits<std::int64_t>::max()};
};

}  // namespace transnormer::long_short
