#include "model/recompute.h"

#include <ATen/ATen.h>
#include <ATen/core/ivalue.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>

#include <utility>

namespace transnormer {
namespace {

using Piece = std::function<at::Tensor(const at::Tensor&)>;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// Carries the piece from the forward to the backward pass.
struct PieceHolder : torch::CustomClassHolder {
  explicit PieceHolder(Piece function) : piece(std::move(function)) {}
  Piece piece;
};

// The parameters are inputs too, so that their gradients come back through this function, and a
// gradient that was not asked for is not made.
class Recomputed : public torch::autograd::Function<Recomputed> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x,
                            const std::vector<at::Tensor>& parameters, const Piece& piece) {
    variable_list saved{x};
    saved.insert(saved.end(), parameters.begin(), parameters.end());
    context->save_for_backward(std::move(saved));
    context->saved_data["piece"] =
        at::IValue::make_capsule(c10::make_intrusive<PieceHolder>(piece));
    return piece(x);
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    variable_list inputs = context->get_saved_variables();
    inputs.front() = inputs.front().detach().requires_grad_();
    const auto holder =
        c10::static_intrusive_pointer_cast<PieceHolder>(context->saved_data["piece"].toCapsule());
    at::AutoGradMode record(true);
    const at::Tensor y = holder->piece(inputs.front());
    variable_list result = torch::autograd::grad({y}, inputs, {gradients.front()},
                                                 /*retain_graph=*/false, /*create_graph=*/false,
                                                 /*allow_unused=*/true);
    result.emplace_back();  // the piece has none
    return result;
  }
};

}  // namespace

at::Tensor recomputed(const at::Tensor& x, const std::vector<at::Tensor>& parameters,
                      const Piece& piece) {
  return Recomputed::apply(x, parameters, piece);
}

}  // namespace transnormer
