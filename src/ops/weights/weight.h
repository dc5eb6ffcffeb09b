// A weight of matrix products: fp32, with a copy in the type of the products that is made again
// whenever the weight has changed, and the place where its gradient is gathered.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/custom_class.h>

#include <vector>

namespace transnormer::ops {

class Weight {
 public:
  Weight() = default;
  // A tensor by itself, a parameter or not. Implicit: any tensor can be multiplied with.
  Weight(const at::Tensor& value);  // NOLINT(google-explicit-constructor)
  // Parameters that lie one behind the other in `joint`, each a leaf that shares its memory, and
  // are multiplied with as one.
  Weight(const at::Tensor& joint, std::vector<at::Tensor> parts);

  [[nodiscard]] bool defined() const { return state_ != nullptr; }
  [[nodiscard]] const at::Tensor& value() const { return state_->value; }

  // The weight for products in `compute` (see product_operand). Kept between calls where it is a
  // copy, whose rows then have a pitch; whoever changes the weight bumps its version, as every
  // operation of LibTorch does.
  [[nodiscard]] at::Tensor operand(at::ScalarType compute) const;

  // What a Function takes as its input, so that the graph knows of the weight.
  [[nodiscard]] const at::Tensor& anchor() const;

  // Gradients are added to gradient() by the operators themselves, without a second buffer and
  // without autograd's knowing; else they are autograd's to hand on.
  [[nodiscard]] bool gathers_gradient() const;

  // The gradient of the whole weight, fp32; zeros are made where there is none. The .grad of the
  // parameters are views of it.
  [[nodiscard]] at::Tensor gradient() const;

 private:
  struct State : torch::CustomClassHolder {
    at::Tensor value;
    std::vector<at::Tensor> parts;  // empty where value is the parameter itself
    at::Tensor copy;
    at::ScalarType copy_type = at::kFloat;  // of the products that the copy is for
    std::int64_t version = -1;              // of the value that was copied
  };
  c10::intrusive_ptr<State> state_;
};

}  // namespace transnormer::ops
