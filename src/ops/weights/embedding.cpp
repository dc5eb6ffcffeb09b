#include "ops/weights/embedding.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include "ops/runtime/carry.h"
#include "ops/runtime/parallel.h"
#include "ops/weights/weight_gradient.h"

namespace transnormer::ops {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr std::int64_t kColumns = 64;  // that are worth a thread

struct Table {
  Weight weight;
  double scale;
  RowGradients* kept;
};

// sum[token] += scale * gradient of each token, in the tokens' order; threads share the columns.
void add_scaled_rows(const at::Tensor& sum, const at::Tensor& tokens, const at::Tensor& gradient,
              double scale) {
  const std::int64_t dim = sum.size(1);
  const at::Tensor rows = gradient.to(at::kFloat).reshape({-1, dim});
  const at::Tensor ids = tokens.reshape({-1}).contiguous();
  if (!sum.is_cpu() || !sum.is_contiguous()) {
    at::Tensor(sum).index_add_(0, ids, rows, scale);
    return;
  }
  const at::Tensor dense = rows.contiguous();
  const auto* id = ids.const_data_ptr<std::int64_t>();
  const auto* from = dense.const_data_ptr<float>();
  auto* to = sum.mutable_data_ptr<float>();
  const auto factor = static_cast<float>(scale);
  parallel_for(dim, kColumns, [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t row = 0; row < ids.numel(); ++row) {
      float* target = to + id[row] * dim;
      const float* source = from + row * dim;
      for (std::int64_t i = first; i < last; ++i) {
        target[i] += factor * source[i];
      }
    }
  });
}

// The rows of each token added up, so that each token stands there once.
RowGradients rows_of(const at::Tensor& tokens, const at::Tensor& gradient, double scale) {
  const auto [once, places, counts] =
      at::_unique2(tokens.reshape({-1}), /*sorted=*/true, /*return_inverse=*/true);
  RowGradients result{once, at::zeros({once.size(0), gradient.size(-1)},
                                      gradient.options().dtype(at::kFloat))};
  add_scaled_rows(result.rows, places, gradient, scale);
  return result;
}

at::Tensor forward_of(const Weight& weight, const at::Tensor& tokens, double scale) {
  return at::embedding(weight.value().detach(), tokens).mul_(scale);
}

struct Embedding : torch::autograd::Function<Embedding> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor&, const at::Tensor& tokens,
                            const Table& table) {
    context->save_for_backward({tokens});
    carry(context, table);
    return forward_of(table.weight, tokens, table.scale);
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const auto& table = carried<Table>(context);
    if (table.kept != nullptr) {
      *table.kept = rows_of(context->get_saved_variables()[0], gradients[0], table.scale);
      return {at::Tensor(), {}, {}};
    }
    const at::Tensor sum = gradient_sum(table.weight);
    add_scaled_rows(sum, context->get_saved_variables()[0], gradients[0], table.scale);
    return {table.weight.gathers_gradient() ? at::Tensor() : sum, {}, {}};
  }
};

}  // namespace

void add_rows(const at::Tensor& sum, const RowGradients& gradients) {
  if (gradients.tokens.defined()) {
    add_scaled_rows(sum, gradients.tokens, gradients.rows, 1);
  }
}

at::Tensor scaled_embedding(const Weight& weight, const at::Tensor& tokens, double scale,
                            RowGradients* kept) {
  if (!at::GradMode::is_enabled()) {
    return forward_of(weight, tokens, scale);
  }
  return Embedding::apply(weight.anchor(), tokens, Table{weight, scale, kept});
}

}  // namespace transnormer::ops
