// Affine maps with an initialisation of their own.
#pragma once

#include <torch/nn/module.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "config/config.h"
#include "model/initializer.h"
#include "ops/weights/weight.h"

namespace transnormer {

// How a Linear starts. Without a gain the weight is uniform within +-1/sqrt(in), as LibTorch's
// Linear; with one it is Xavier uniform, +-gain * sqrt(6 / (in + out)).
struct LinearStart {
  std::optional<double> xavier_gain{};
  bool zero_bias = false;              // else uniform within +-1/sqrt(in)
  std::optional<double> normal_std{};  // of a weight that is normal, whatever the gain
};

// y = x W^T + b; `weight` [out, in], `bias` [out], fp32.
class Linear : public torch::nn::Module, public Initializable {
 public:
  Linear(std::int64_t in, std::int64_t out, LinearStart start, at::Device device);
  // On memory that is there already.
  Linear(const at::Tensor& weight, const at::Tensor& bias, LinearStart start);

  // x: [.., in] -> [.., out] in the type `compute`.
  [[nodiscard]] at::Tensor forward(const at::Tensor& x, at::ScalarType compute) const;
  // The same of act(gate) * up; gate_up: [.., 2 * in], side by side.
  [[nodiscard]] at::Tensor forward_gated(const at::Tensor& gate_up, Activation activation,
                                         at::ScalarType compute) const;
  void initialize(const Initializer& initializer, const std::string& prefix) override;

  [[nodiscard]] const at::Tensor& weight() const { return weight_; }
  [[nodiscard]] const at::Tensor& bias() const { return bias_; }

 private:
  LinearStart start_;
  at::Tensor weight_;
  at::Tensor bias_;
  ops::Weight weight_operand_;
  ops::Weight bias_operand_;
};

// Linears of one input that lie side by side in memory, so that one product serves them all.
class LinearGroup {
 public:
  struct Part {
    const char* name;  // under which it is registered
    std::int64_t out;
    LinearStart start;
  };
  LinearGroup(torch::nn::Module& owner, std::int64_t in, const std::vector<Part>& parts,
              at::Device device);

  // x: [.., in] -> [.., sum of all out], side by side, in the type `compute`.
  [[nodiscard]] at::Tensor forward(const at::Tensor& x, at::ScalarType compute) const;

 private:
  ops::Weight weight_;
  ops::Weight bias_;
};

// A table of rows ("weight", [rows, dim]), normal with standard deviation dim^-1/2: the embedding,
// learned positions, an output layer of its own.
class Table : public torch::nn::Module, public Initializable {
 public:
  Table(std::int64_t rows, std::int64_t dim, at::Device device);

  [[nodiscard]] const at::Tensor& weight() const { return weight_; }
  [[nodiscard]] const ops::Weight& operand() const { return operand_; }
  void initialize(const Initializer& initializer, const std::string& prefix) override;

 private:
  at::Tensor weight_;
  ops::Weight operand_;
};

// The output layer: a "weight" like a Table's unless the embedding's serves, a "bias" [words], from
// 0, if there is one.
class OutputTable : public torch::nn::Module, public Initializable {
 public:
  struct Has {
    bool weight = true;
    bool bias = false;
  };
  OutputTable(std::int64_t words, std::int64_t dim, const Has& has, at::Device device);

  // Undefined where there is none.
  [[nodiscard]] const ops::Weight& weight() const { return weight_operand_; }
  [[nodiscard]] const ops::Weight& bias() const { return bias_operand_; }
  void initialize(const Initializer& initializer, const std::string& prefix) override;

 private:
  at::Tensor weight_;
  at::Tensor bias_;
  ops::Weight weight_operand_;
  ops::Weight bias_operand_;
};

}  // namespace transnormer
