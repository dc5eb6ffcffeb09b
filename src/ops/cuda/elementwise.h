// Element-wise maps. `Launcher` runs them, see ops/cuda/table.h: most as put(i, make(i)), which
// lets a thread have several elements on their way at once.
#pragma once

#include <type_traits>

#include "ops/cuda/mask.h"
#include "ops/cuda/portable.h"

namespace transnormer::ops::cuda {

using kernels::Gate;
using kernels::GatedRows;
using kernels::Mask;

TRANSNORMER_DEVICE inline float sigmoid(float x) {
  return 1.F / (1.F + expf(-x));
}

template <Gate kind>
TRANSNORMER_DEVICE float activated(float x) {
  if constexpr (kind == Gate::silu) {
    return x * sigmoid(x);
  } else if constexpr (kind == Gate::relu) {
    return x < 0.F ? 0.F : x;  // not-a-number passes, as it must in every kernel
  } else {
    return x;
  }
}

template <Gate kind>
TRANSNORMER_DEVICE float activation_slope(float x) {
  if constexpr (kind == Gate::silu) {
    const float s = sigmoid(x);
    return s * (1.F + x * (1.F - s));
  } else if constexpr (kind == Gate::relu) {
    return x <= 0.F ? 0.F : 1.F;
  } else {
    return 1.F;
  }
}

// Where element i of [rows, width] lies: its gate's place, whose factor is `width` further on, and
// its place in the output.
struct GatedPlace {
  std::int64_t gate;
  std::int64_t out;

  TRANSNORMER_DEVICE GatedPlace(std::int64_t i, const GatedRows& all) {
    const std::int64_t row = quotient(i, all.width);
    const std::int64_t column = i - row * all.width;
    gate = row * all.gate_up_stride + column;
    out = row * all.out_stride + column;
  }
};

template <Gate kind, typename T>
struct GatedElement {
  const T* gate_up;
  T* out;
  GatedRows all;

  [[nodiscard]] TRANSNORMER_DEVICE T make(std::int64_t i) const {
    const T* gate = gate_up + GatedPlace(i, all).gate;
    return rounded<T>(activated<kind>(value(gate[0])) * value(gate[all.width]));
  }
  TRANSNORMER_DEVICE void put(std::int64_t i, T x) const { out[GatedPlace(i, all).out] = x; }
};

template <typename T>
struct GatePair {
  T gate;
  T up;
};

template <Gate kind, typename T>
struct GatedBackwardElement {
  const T* gate_up;
  const T* d_out;
  T* d_gate_up;
  GatedRows all;

  [[nodiscard]] TRANSNORMER_DEVICE GatePair<T> make(std::int64_t i) const {
    const GatedPlace place(i, all);
    const T* gate = gate_up + place.gate;
    const float x = value(gate[0]);
    const float g = value(d_out[place.out]);
    return {rounded<T>(g * value(gate[all.width]) * activation_slope<kind>(x)),
            rounded<T>(g * activated<kind>(x))};
  }
  TRANSNORMER_DEVICE void put(std::int64_t i, GatePair<T> d) const {
    T* gate = d_gate_up + GatedPlace(i, all).gate;
    gate[0] = d.gate;
    gate[all.width] = d.up;
  }
};

TRANSNORMER_DEVICE inline float elu_of(float x, bool plus_one) {
  if (x > 0.F) {
    return plus_one ? x + 1.F : x;
  }
  return plus_one ? expf(x) : expm1f(x);
}

TRANSNORMER_DEVICE inline float elu_slope(float x) {
  return x > 0.F ? 1.F : expf(x);
}

template <typename T>
struct EluElement {
  const T* x;
  T* y;
  bool plus_one;

  [[nodiscard]] TRANSNORMER_DEVICE T make(std::int64_t i) const {
    return rounded<T>(elu_of(value(x[i]), plus_one));
  }
  TRANSNORMER_DEVICE void put(std::int64_t i, T made) const { y[i] = made; }
};

template <typename T>
struct EluBackwardElement {
  const T* x;
  const T* d_y;
  T* d_x;

  [[nodiscard]] TRANSNORMER_DEVICE T make(std::int64_t i) const {
    return rounded<T>(value(d_y[i]) * elu_slope(value(x[i])));
  }
  TRANSNORMER_DEVICE void put(std::int64_t i, T made) const { d_x[i] = made; }
};

template <typename T>
struct AccumulateElement {
  const T* x;
  float* sum;

  [[nodiscard]] TRANSNORMER_DEVICE float make(std::int64_t i) const { return sum[i] + value(x[i]); }
  TRANSNORMER_DEVICE void put(std::int64_t i, float made) const { sum[i] = made; }
};

// A thread for each group of four elements of a sample.
template <typename T>
struct DropoutGroup {
  Mask mask;
  const T* x;
  T* y;
  std::int64_t elements;  // of a sample
  std::int64_t groups;    // of a sample
  std::int64_t first;     // of all elements
  std::int64_t last;

  TRANSNORMER_DEVICE void operator()(std::int64_t i) const {
    const std::int64_t sample = quotient(first, elements) + quotient(i, groups);
    const SampleMask own(mask, sample);
    for_group(own, mask.first, elements, i % groups, [&](std::int64_t element, float factor) {
      const std::int64_t place = sample * elements + element;
      if (place >= first && place < last) {
        y[place] = rounded<T>(value(x[place]) * factor);
      }
    });
  }
};

struct MaskGroup {
  Mask mask;
  float* out;
  std::int64_t count;

  TRANSNORMER_DEVICE void operator()(std::int64_t i) const {
    const SampleMask own(mask, 0);
    for_group(own, mask.first, count, i,
              [&](std::int64_t element, float factor) { out[element] = factor; });
  }
};

template <typename Body>
void by_gate(Gate kind, Body body) {
  switch (kind) {
    case Gate::silu:
      body.template operator()<Gate::silu>();
      break;
    case Gate::relu:
      body.template operator()<Gate::relu>();
      break;
    case Gate::none:
      body.template operator()<Gate::none>();
  }
}

inline GatedRows with_strides(const GatedRows& all) {
  return {all.rows, all.width, all.gate_up_step(), all.out_step()};
}

template <typename Launcher>
struct Elementwise {
  static void gated(Gate kind, In gate_up, Out out, const GatedRows& given) {
    const GatedRows all = with_strides(given);
    by_type(gate_up.type, [&](auto* t) {
      by_gate(kind, [&]<Gate k>() {
        Launcher::maps(all.rows * all.width, GatedElement<k, std::remove_pointer_t<decltype(t)>>{
                                                 as(gate_up, t), as(out, t), all});
      });
    });
  }

  static void gated_backward(Gate kind, In gate_up, In d_out, Out d_gate_up,
                             const GatedRows& given) {
    const GatedRows all = with_strides(given);
    by_type(gate_up.type, [&](auto* t) {
      by_gate(kind, [&]<Gate k>() {
        Launcher::maps(all.rows * all.width,
                       GatedBackwardElement<k, std::remove_pointer_t<decltype(t)>>{
                           as(gate_up, t), as(d_out, t), as(d_gate_up, t), all});
      });
    });
  }

  static void elu(bool plus_one, In x, Out y, std::int64_t count) {
    by_type(x.type, [&](auto* t) {
      Launcher::maps(count, EluElement{as(x, t), as(y, t), plus_one});
    });
  }

  static void elu_backward(In x, In d_y, Out d_x, std::int64_t count) {
    by_type(x.type, [&](auto* t) {
      Launcher::maps(count, EluBackwardElement{as(x, t), as(d_y, t), as(d_x, t)});
    });
  }

  static void accumulate(In x, float* sum, std::int64_t count) {
    by_type(x.type, [&](auto* t) { Launcher::maps(count, AccumulateElement{as(x, t), sum}); });
  }

  static void dropout(const Mask& mask, In x, Out y, std::int64_t elements, std::int64_t first,
                      std::int64_t last) {
    if (first >= last) {
      return;
    }
    const std::int64_t samples = (last - 1) / elements - first / elements + 1;
    const std::int64_t groups = groups_touched(mask.first, elements);
    by_type(x.type, [&](auto* t) {
      Launcher::elements(samples * groups,
                         DropoutGroup{mask, as(x, t), as(y, t), elements, groups, first, last});
    });
  }

  static void dropout_mask(const Mask& mask, float* out, std::int64_t count) {
    Launcher::elements(groups_touched(mask.first, count), MaskGroup{mask, out, count});
  }
};

}  // namespace transnormer::ops::cuda
