// Products of a few rows on a CPU, as decoding makes them: as fast as the weights can be read,
// where the library's are made for many rows.
#pragma once

#include <ATen/core/Tensor.h>

namespace transnormer::ops {

// While one lives, this thread's products are those of a pass with gradients, bit for bit, though
// it wants none: what runs first of a piece that the backward pass makes again.
class ProductsAsWithGradients {
 public:
  ProductsAsWithGradients();
  ~ProductsAsWithGradients();
  ProductsAsWithGradients(const ProductsAsWithGradients&) = delete;
  ProductsAsWithGradients& operator=(const ProductsAsWithGradients&) = delete;

 private:
  bool former_;
};

// Whether few_rows_product serves: 1 to 64 rows (16 in half precision), operands of one type that
// the kernels know.
[[nodiscard]] bool few_rows_fit(const at::Tensor& x, const at::Tensor& weight);

// x [.., in] W^T + bias, in x's type, by sums in fp32; weight: [out, in]; bias: [out] or undefined,
// of the same type. A row's result depends neither on the other rows nor on the threads.
[[nodiscard]] at::Tensor few_rows_product(const at::Tensor& x, const at::Tensor& weight,
                                          const at::Tensor& bias);

}  // namespace transnormer::ops
