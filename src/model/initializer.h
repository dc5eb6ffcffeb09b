// Initial weights as functions of (seed, name, element): the same at any thread count.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>

namespace transnormer {

// Fills fp32 tensors on any device; the numbers are made on the CPU, by all threads.
class Initializer {
 public:
  explicit Initializer(std::uint64_t seed) : seed_(seed) {}

  // In [-bound, bound).
  void uniform(const at::Tensor& tensor, const std::string& name, double bound) const;
  void normal(const at::Tensor& tensor, const std::string& name, double std) const;

 private:
  std::uint64_t seed_;
};

// A module that owns tensors and knows how they start. `prefix` is the module's own name with a
// point behind it: "layers.0.attn.q_proj.".
class Initializable {
 public:
  virtual ~Initializable() = default;
  virtual void initialize(const Initializer& initializer, const std::string& prefix) = 0;
};

}  // namespace transnormer
