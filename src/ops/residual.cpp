#include "ops/residual.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include <optional>

#include "ops/norm.h"
#include "ops/runtime/carry.h"
#include "ops/runtime/launch.h"
#include "ops/runtime/philox_tensor.h"

namespace transnormer::ops {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// What a branch is made of, beside tensors.
struct Branch {
  Drop drop;
  double eps = 0;                    // of the norm
  at::ScalarType type = at::kFloat;  // of y and of the norm
  bool adds = true;                  // whether there is a y
};

kernels::Residual shape_of(const at::Tensor& x, const Branch& branch) {
  return {.first = 0,
          .last = 0,
          .rows_per_sample = x.size(0) > 0 ? row_count(x) / x.size(0) : 0,
          .dim = x.size(-1),
          .eps = static_cast<float>(branch.eps),
          .drops = branch.drop.p > 0,
          .mask = kernel_mask(branch.drop.key, branch.drop.p, 0, 0)};
}

template <typename Kernel>
bool kernel_fits(const at::Tensor& x, at::ScalarType type, Kernel kernel) {
  return x.scalar_type() == at::kFloat && kernel_serves(x, kernel) &&
         kernel_serves(x.device(), type, kernel);
}

kernels::In optional_in(const at::Tensor& x) {
  return x.defined() ? in(x) : kernels::In{nullptr, kernels::Element::f32};
}
kernels::Out optional_out(const at::Tensor& x) {
  return x.defined() ? out(x) : kernels::Out{nullptr, kernels::Element::f32};
}

// Calls body(kernels, part of the rows) for all rows of x.
template <typename Body>
void launch_rows(const at::Tensor& x, const Branch& branch, const Body& body) {
  const kernels::Residual all = shape_of(x, branch);
  launch(x, row_count(x), row_grain(all.dim),
         [&](const kernels::Kernels& k, std::int64_t first, std::int64_t last) {
           kernels::Residual part = all;
           part.first = first;
           part.last = last;
           body(k, part);
         });
}

StreamAndNorm forward_of(const at::Tensor& x, const at::Tensor& y, const Branch& branch,
                         bool with_norm) {
  if (!kernel_fits(x, branch.type, &kernels::Kernels::residual) || y.scalar_type() != branch.type) {
    const at::NoGradGuard no_gradients;
    const at::Tensor sum = x + dropout(y, branch.drop.p, branch.drop.key);
    return {sum, with_norm ? srms_norm(sum, branch.eps, branch.type) : at::Tensor()};
  }
  const at::Tensor stream = x.contiguous();
  const at::Tensor added = y.contiguous();
  const StreamAndNorm result{empty_dense(x),
                             with_norm ? at::empty(x.sizes(), y.options()) : at::Tensor()};
  launch_rows(x, branch, [&](const kernels::Kernels& k, const kernels::Residual& part) {
    k.residual(part, in(stream), in(added), out(result.stream), optional_out(result.normed));
  });
  return result;
}

StreamAndNorm normed_forward(const at::Tensor& x, const std::optional<at::Tensor>& y,
                             const Branch& branch) {
  return y ? forward_of(x, *y, branch, /*with_norm=*/true)
           : StreamAndNorm{x, srms_norm(x, branch.eps, branch.type)};
}

struct Gradients {
  at::Tensor x;
  at::Tensor y;
};

// d_sum or d_normed may be undefined, but not both.
Gradients backward_of(const at::Tensor& sum, const at::Tensor& d_sum, const at::Tensor& d_normed,
                      const Branch& branch, bool with_y) {
  if (!kernel_fits(sum, branch.type, &kernels::Kernels::residual_backward)) {
    at::Tensor d_x = d_sum;
    if (d_normed.defined()) {
      const at::Tensor from_norm = srms_norm_backward(d_normed, sum, branch.eps);
      d_x = d_x.defined() ? d_x + from_norm : from_norm;
    }
    return {d_x,
            with_y ? dropout(d_x.to(branch.type), branch.drop.p, branch.drop.key) : at::Tensor()};
  }
  // Read for the norm only. Where no branch came in it is the caller's, of any strides.
  const at::Tensor stream = d_normed.defined() ? sum.contiguous() : sum;
  const at::Tensor stream_gradient = d_sum.defined() ? dense_like(d_sum, sum) : d_sum;
  const at::Tensor norm_gradient =
      d_normed.defined() ? d_normed.to(branch.type).contiguous() : d_normed;
  const Gradients d{
      norm_gradient.defined() ? empty_dense(sum) : at::Tensor(),
      with_y ? at::empty(sum.sizes(), sum.options().dtype(branch.type)) : at::Tensor()};
  if (d.x.defined() || d.y.defined()) {
    launch_rows(sum, branch, [&](const kernels::Kernels& k, const kernels::Residual& part) {
      k.residual_backward(part, in(stream), optional_in(stream_gradient),
                          optional_in(norm_gradient), optional_out(d.x), optional_out(d.y));
    });
  }
  return {d.x.defined() ? d.x : stream_gradient, d.y};
}

struct Residual : torch::autograd::Function<Residual> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& y,
                            const Drop& drop) {
    const Branch& branch = carry(context, Branch{.drop = drop, .type = y.scalar_type()});
    return forward_of(x, y, branch, /*with_norm=*/false).stream;
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    // The sum is read for the norm's gradient only.
    Gradients d = backward_of(gradients[0], gradients[0], {}, carried<Branch>(context),
                              context->needs_input_grad(1));
    return {d.x, d.y, {}};
  }
};

struct ResidualNorm : torch::autograd::Function<ResidualNorm> {
  static variable_list forward(AutogradContext* context, const at::Tensor& x,
                               const std::optional<at::Tensor>& y, const Drop& drop, double eps,
                               at::ScalarType result) {
    const Branch& branch =
        carry(context, Branch{.drop = drop, .eps = eps, .type = result, .adds = y.has_value()});
    context->set_materialize_grads(false);
    const StreamAndNorm made = normed_forward(x, y, branch);
    context->save_for_backward({made.stream});
    return {made.stream, made.normed};
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const at::Tensor stream = context->get_saved_variables()[0];
    const auto& branch = carried<Branch>(context);
    const bool with_y = branch.adds && context->needs_input_grad(1);
    Gradients d = backward_of(stream, gradients[0], gradients[1], branch, with_y);
    return {d.x, d.y, {}, {}, {}};
  }
};

}  // namespace

at::Tensor residual(const at::Tensor& x, const at::Tensor& y, const Drop& drop) {
  return at::GradMode::is_enabled()
             ? Residual::apply(x, y, drop)
             : forward_of(x, y, {.drop = drop, .type = y.scalar_type()}, /*with_norm=*/false)
                   .stream;
}

StreamAndNorm residual_srms_norm(const at::Tensor& x, const at::Tensor& y, const Drop& drop,
                                 double eps, at::ScalarType result) {
  const std::optional<at::Tensor> added = y.defined() ? std::optional(y.to(result)) : std::nullopt;
  if (!at::GradMode::is_enabled()) {
    return normed_forward(x, added, {.drop = drop, .eps = eps, .type = result});
  }
  const variable_list made = ResidualNorm::apply(x, added, drop, eps, result);
  return {made[0], made[1]};
}

}  // namespace transnormer::ops
