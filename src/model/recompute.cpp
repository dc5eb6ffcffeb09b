#include "model/recompute.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/saved_variable.h>

#include <utility>

#include "ops/weights/few_rows.h"

namespace transnormer {
namespace {

using Piece = std::function<at::Tensor(const at::Tensor&)>;
using torch::autograd::SavedVariable;
using torch::autograd::variable_list;

// The parameters are inputs as x is, so that the operators inside know that their gradients are
// wanted; those that the operators do not gather themselves come back through this node.
class RecomputeNode : public torch::autograd::Node {
 public:
  RecomputeNode(const at::Tensor& x, std::vector<at::Tensor> parameters, Piece piece)
      : Node(torch::autograd::collect_next_edges(x, parameters)),
        x_(x, /*is_output=*/false),
        parameters_(std::move(parameters)),
        piece_(std::move(piece)) {}

  variable_list apply(variable_list&& gradients) override {
    variable_list inputs{x_.unpack().detach().requires_grad_()};
    inputs.insert(inputs.end(), parameters_.begin(), parameters_.end());
    at::AutoGradMode record(true);
    const at::Tensor y = piece_(inputs.front());
    return torch::autograd::grad({y}, inputs, {gradients.front()}, /*retain_graph=*/false,
                                 /*create_graph=*/false, /*allow_unused=*/true);
  }

  void release_variables() override { x_.reset_data(); }

 private:
  SavedVariable x_;
  std::vector<at::Tensor> parameters_;
  Piece piece_;
};

}  // namespace

at::Tensor recomputed(const at::Tensor& x, const std::vector<at::Tensor>& parameters,
                      const Piece& piece) {
  at::Tensor y;
  {
    at::NoGradGuard no_grad;
    const ops::ProductsAsWithGradients as_again;
    y = piece(x);
  }
  if (at::GradMode::is_enabled()) {
    torch::autograd::set_history(
        y, std::shared_ptr<RecomputeNode>(new RecomputeNode(x, parameters, piece),
                                          torch::autograd::deleteNode));
  }
  return y;
}

}  // namespace transnormer
