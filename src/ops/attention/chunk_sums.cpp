#include "ops/attention/chunk_sums.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>

namespace transnormer::ops {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// Of the sums that are made at a time: what a CPU's cache holds, and what a GPU does not mind.
constexpr std::int64_t kCpuBytes = 4LL << 20;
constexpr std::int64_t kGpuBytes = 256LL << 20;

// Walks over the chunks in groups, with the sums of a b^T around each chunk. a, b: [rows, chunks,
// length, dim].
class Sums {
 public:
  Sums(const at::Tensor& a, const at::Tensor& b)
      : a_(a), b_(b), running_(at::zeros({a.size(0), a.size(3), b.size(3)}, b.options())) {
    const std::int64_t bytes = 4 * running_.numel();
    group_ = std::clamp<std::int64_t>((a.is_cpu() ? kCpuBytes : kGpuBytes) / bytes, 1, a.size(1));
  }

  void start(const at::Tensor& before) {
    if (before.defined()) {
      running_ = before;
    }
  }

  // body(first chunk, chunks, sums over the chunks before each: [rows, chunks, a_dim, b_dim]).
  template <typename Body>
  void before(const Body& body) {
    for (std::int64_t first = 0; first < a_.size(1); first += group_) {
      walk(first, std::min(group_, a_.size(1) - first), false, body);
    }
  }
  // The same over the chunks behind each, from the last group to the first.
  template <typename Body>
  void behind(const Body& body) {
    for (std::int64_t last = a_.size(1); last > 0; last -= std::min(group_, last)) {
      const std::int64_t count = std::min(group_, last);
      walk(last - count, count, true, body);
    }
  }

 private:
  template <typename Body>
  void walk(std::int64_t first, std::int64_t count, bool backwards, const Body& body) {
    const at::Tensor own = at::matmul(a_.narrow(1, first, count).mT(), b_.narrow(1, first, count));
    if (count == 1) {
      body(first, count, running_.unsqueeze(1));
      running_ = running_ + own.select(1, 0);
      return;
    }
    const at::Tensor around = at::empty_like(own);
    for (std::int64_t i = 0; i < count; ++i) {
      const std::int64_t chunk = backwards ? count - 1 - i : i;
      around.select(1, chunk).copy_(running_);
      running_ = running_ + own.select(1, chunk);
    }
    body(first, count, around);
  }

  const at::Tensor& a_;
  const at::Tensor& b_;
  at::Tensor running_;
  std::int64_t group_ = 1;
};

at::Tensor forward_of(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                      const at::Tensor& before) {
  const at::Tensor value = v.to(at::kFloat);
  const at::Tensor out = at::empty(value.sizes(), value.options());
  Sums sums(k, value);
  sums.start(before);
  sums.before([&](std::int64_t first, std::int64_t count, const at::Tensor& sum) {
    out.narrow(1, first, count).copy_(at::matmul(q.narrow(1, first, count), sum));
  });
  return out;
}

struct EarlierChunks : torch::autograd::Function<EarlierChunks> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& q, const at::Tensor& k,
                            const at::Tensor& v) {
    context->save_for_backward({q, k, v});
    return forward_of(q, k, v, {});
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const variable_list saved = context->get_saved_variables();
    const at::Tensor& q = saved[0];
    const at::Tensor& k = saved[1];
    const at::Tensor value = saved[2].to(at::kFloat);
    const at::Tensor g = gradients[0].contiguous();
    at::Tensor d_q = at::empty_like(q);
    at::Tensor d_k = at::empty_like(k);
    at::Tensor d_value = at::empty_like(value);
    Sums(k, value).before([&](std::int64_t first, std::int64_t count, const at::Tensor& sum) {
      d_q.narrow(1, first, count).copy_(at::matmul(g.narrow(1, first, count), sum.mT()));
    });
    Sums(q, g).behind([&](std::int64_t first, std::int64_t count, const at::Tensor& sum) {
      d_k.narrow(1, first, count).copy_(at::matmul(value.narrow(1, first, count), sum.mT()));
      d_value.narrow(1, first, count).copy_(at::matmul(k.narrow(1, first, count), sum));
    });
    return {d_q, d_k, d_value.to(saved[2].scalar_type())};
  }
};

}  // namespace

at::Tensor attend_earlier_chunks(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                 const at::Tensor& before) {
  return at::GradMode::is_enabled() && !before.defined() ? EarlierChunks::apply(q, k, v)
                                                         : forward_of(q, k, v, before);
}

}  // namespace transnormer::ops
