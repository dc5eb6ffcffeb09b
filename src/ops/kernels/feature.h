// Functions of single elements: the feature maps of linear attention and the gates of a GLU. Each
// is written once, for vectors, scalars of a GPU and tensors. M is the arithmetic of such numbers:
//   select(condition, a, b)   a where the condition holds, else b
//   exp(x), expm1(x)          e^x and e^x - 1
//   reciprocal(x)             1 / x
//   number(x, c)              the constant c as a number like x
// What is not a number stays so. `y` of a slope is the value at x.
#pragma once

#include "ops/kernels/device.h"
#include "ops/kernels/kernels.h"

namespace transnormer::ops::kernels {

struct Function {
  static constexpr bool is_identity = false;
};

struct Identity {
  static constexpr bool is_identity = true;
  template <typename M, typename V>
  TRANSNORMER_DEVICE static V value(V x) {
    return x;
  }
  template <typename M, typename V>
  TRANSNORMER_DEVICE static V slope(V x, V /*y*/) {
    return M::number(x, 1.F);
  }
};

// elu(x) + 1.
struct Elu1 : Function {
  template <typename M, typename V>
  TRANSNORMER_DEVICE static V value(V x) {
    return M::select(x > 0.F, x + 1.F, M::exp(x));
  }
  template <typename M, typename V>
  TRANSNORMER_DEVICE static V slope(V x, V y) {
    return M::select(x > 0.F, M::number(x, 1.F), y);
  }
};

struct Elu : Function {
  template <typename M, typename V>
  TRANSNORMER_DEVICE static V value(V x) {
    return M::select(x > 0.F, x, M::expm1(x));
  }
  template <typename M, typename V>
  TRANSNORMER_DEVICE static V slope(V x, V y) {
    return M::select(x > 0.F, M::number(x, 1.F), y + 1.F);
  }
};

struct Relu : Function {
  template <typename M, typename V>
  TRANSNORMER_DEVICE static V value(V x) {
    return M::select(x < 0.F, M::number(x, 0.F), x);
  }
  template <typename M, typename V>
  TRANSNORMER_DEVICE static V slope(V x, V /*y*/) {
    return M::select(x <= 0.F, M::number(x, 0.F), M::number(x, 1.F));
  }
};

// x / (1 + e^-x).
struct Silu : Function {
  template <typename M, typename V>
  TRANSNORMER_DEVICE static V value(V x) {
    return x * sigmoid<M>(x);
  }
  template <typename M, typename V>
  TRANSNORMER_DEVICE static V slope(V x, V /*y*/) {
    const V s = sigmoid<M>(x);
    return s * (1.F + x * (1.F - s));
  }

 private:
  template <typename M, typename V>
  TRANSNORMER_DEVICE static V sigmoid(V x) {
    return M::reciprocal(1.F + M::exp(-x));
  }
};

struct Exp : Function {
  template <typename M, typename V>
  TRANSNORMER_DEVICE static V value(V x) {
    return M::exp(x);
  }
  template <typename M, typename V>
  TRANSNORMER_DEVICE static V slope(V /*x*/, V y) {
    return y;
  }
};

// Calls body<F>() with the function that a feature names.
template <typename Body>
TRANSNORMER_DEVICE inline auto by_feature(Feature feature, Body body) {
  switch (feature) {
    case Feature::elu:
      return body.template operator()<Elu>();
    case Feature::elu1:
      return body.template operator()<Elu1>();
    case Feature::relu:
      return body.template operator()<Relu>();
    case Feature::silu:
      return body.template operator()<Silu>();
    case Feature::exp:
      return body.template operator()<Exp>();
    case Feature::none:
      break;
  }
  return body.template operator()<Identity>();
}

// .. that a gate names.
template <typename Body>
inline void by_gate(Gate gate, Body body) {
  switch (gate) {
    case Gate::silu:
      body.template operator()<Silu>();
      break;
    case Gate::relu:
      body.template operator()<Relu>();
      break;
    case Gate::none:
      body.template operator()<Identity>();
  }
}

}  // namespace transnormer::ops::kernels
