// What tests of the emulated GPU kernels share: each runs beside the CPU's, in every type.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "ops/emulation.h"
#include "ops/reference.h"
#include "ops/runtime/kernel_view.h"
#include "ops/runtime/philox_tensor.h"
#include "ops/runtime/scratch.h"

namespace transnormer::ops {

using Tensors = std::vector<at::Tensor>;
using kernels::Gate;
using kernels::Kernels;

// A tensor that a kernel is given, in fp32; it comes in the tested type unless it is `wide`.
struct Given {
  at::Tensor x;
  bool wide = false;
};

inline Given wide(const at::Tensor& x) {
  return {x, true};
}

// What a kernel fills, at first full of what is not a number.
inline Given blank(at::IntArrayRef sizes) {
  return {at::full(sizes, NAN)};
}

// The same in the first columns; zeros, which have to stay, behind them.
inline Given blank_but(at::IntArrayRef sizes, std::int64_t columns) {
  const Given given = blank(sizes);
  given.x.slice(1, columns).zero_();
  return given;
}

using Body = std::function<void(const Kernels&, const Tensors& given, const Tensors& results)>;

inline Tensors as_type(const std::vector<Given>& given, at::ScalarType type) {
  Tensors result;
  for (const Given& g : given) {
    result.push_back(g.wide ? g.x.clone() : g.x.to(type).clone());
  }
  return result;
}

inline Tensors emulated(const Tensors& given, const std::vector<Given>& blanks, at::ScalarType type,
                        bool backwards, const Body& body) {
  const Tensors results = as_type(blanks, type);
  emulation_runs_backwards = backwards;
  body(emulated_kernels(), given, results);
  emulation_runs_backwards = false;
  return results;
}

// Emulated in every type, the body gives what the CPU's kernels give in fp32 for the same rounded
// inputs, and the same bits whatever the order of threads.
inline void expect_like_cpu(const std::string& what, const std::vector<Given>& inputs,
                            const std::vector<Given>& blanks, const Body& body) {
  for (const auto& [type, tolerance] :
       {std::pair{at::kFloat, 4e-6}, std::pair{at::kBFloat16, 0x1.02p-8},
        std::pair{at::kHalf, 0x1.02p-11}}) {
    const std::string name = what + ", " + c10::toString(type);
    const Tensors given = as_type(inputs, type);
    Tensors exact;
    for (const at::Tensor& x : given) {
      exact.push_back(x.is_floating_point() && x.scalar_type() != at::kDouble ? x.to(at::kFloat)
                                                                              : x);
    }
    const Tensors expected = as_type(blanks, at::kFloat);
    for (std::size_t i = 0; i < expected.size(); ++i) {  // what is changed in place was rounded too
      if (!blanks[i].wide) {
        expected[i].copy_(blanks[i].x.to(type));
      }
    }
    body(kernels::kernels(), exact, expected);
    const Tensors found = emulated(given, blanks, type, false, body);
    const Tensors again = emulated(given, blanks, type, true, body);
    for (std::size_t i = 0; i < expected.size(); ++i) {
      // A gradient of angles is what is left of large terms in single precision.
      const double own = blanks[i].x.scalar_type() == at::kDouble ? 1e-4
                         : blanks[i].wide                         ? 4e-6
                                                                  : tolerance;
      EXPECT_LT(distance(found[i], expected[i]), own) << name << ", result " << i;
      EXPECT_TRUE(at::equal(found[i], again[i])) << name << ": the order of threads matters";
    }
  }
}

inline kernels::Mask some_mask(double p) {
  return kernel_mask({0x123456789ABCDEF, 77, 5, 2, (1LL << 32) - 2}, p, 0, 6);
}

}  // namespace transnormer::ops
