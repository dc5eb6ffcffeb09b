// Element-wise functions. `Launcher` runs them, see ops/cuda/table.h: most as put(i, make(i)),
// which lets a thread have several elements on their way at once.
#pragma once

#include <type_traits>

#include "ops/cuda/mask.h"
#include "ops/cuda/portable.h"
#include "ops/kernels/feature.h"

namespace transnormer::ops::cuda {

using kernels::Feature;
using kernels::Gate;
using kernels::GatedRows;
using kernels::Mask;

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

template <typename Act, typename T>
struct GatedElement {
  const T* gate_up;
  T* out;
  GatedRows all;

  [[nodiscard]] TRANSNORMER_DEVICE T make(std::int64_t i) const {
    const T* gate = gate_up + GatedPlace(i, all).gate;
    return rounded<T>(Act::template value<Scalars>(value(gate[0])) * value(gate[all.width]));
  }
  TRANSNORMER_DEVICE void put(std::int64_t i, T x) const { out[GatedPlace(i, all).out] = x; }
};

template <typename T>
struct GatePair {
  T gate;
  T up;
};

template <typename Act, typename T>
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
    const float y = Act::template value<Scalars>(x);
    return {rounded<T>(g * value(gate[all.width]) * Act::template slope<Scalars>(x, y)),
            rounded<T>(g * y)};
  }
  TRANSNORMER_DEVICE void put(std::int64_t i, GatePair<T> d) const {
    T* gate = d_gate_up + GatedPlace(i, all).gate;
    gate[0] = d.gate;
    gate[all.width] = d.up;
  }
};

TRANSNORMER_DEVICE inline float feature_of(Feature feature, float x) {
  return kernels::by_feature(feature,
                             [x]<typename Phi>() { return Phi::template value<Scalars>(x); });
}

// `y` is the feature of x.
TRANSNORMER_DEVICE inline float feature_slope(Feature feature, float x, float y) {
  return kernels::by_feature(feature,
                             [x, y]<typename Phi>() { return Phi::template slope<Scalars>(x, y); });
}

template <typename T>
struct FeatureElement {
  const T* x;
  T* y;
  Feature feature;

  [[nodiscard]] TRANSNORMER_DEVICE T make(std::int64_t i) const {
    return rounded<T>(feature_of(feature, value(x[i])));
  }
  TRANSNORMER_DEVICE void put(std::int64_t i, T made) const { y[i] = made; }
};

template <typename T>
struct FeatureBackwardElement {
  const T* x;
  const T* d_y;
  T* d_x;
  Feature feature;

  [[nodiscard]] TRANSNORMER_DEVICE T make(std::int64_t i) const {
    const float here = value(x[i]);
    return rounded<T>(value(d_y[i]) * feature_slope(feature, here, feature_of(feature, here)));
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

inline GatedRows with_strides(const GatedRows& all) {
  return {all.rows, all.width, all.gate_up_step(), all.out_step()};
}

template <typename Launcher>
struct Elementwise {
  static void gated(Gate kind, In gate_up, Out out, const GatedRows& given) {
    const GatedRows all = with_strides(given);
    by_type(gate_up.type, [&](auto* t) {
      kernels::by_gate(kind, [&]<typename Act>() {
        Launcher::elementwise(
            all.rows * all.width,
            GatedElement<Act, std::remove_pointer_t<decltype(t)>>{as(gate_up, t), as(out, t), all});
      });
    });
  }

  static void gated_backward(Gate kind, In gate_up, In d_out, Out d_gate_up,
                             const GatedRows& given) {
    const GatedRows all = with_strides(given);
    by_type(gate_up.type, [&](auto* t) {
      kernels::by_gate(kind, [&]<typename Act>() {
        Launcher::elementwise(all.rows * all.width,
                              GatedBackwardElement<Act, std::remove_pointer_t<decltype(t)>>{
                                  as(gate_up, t), as(d_out, t), as(d_gate_up, t), all});
      });
    });
  }

  static void feature(Feature feature, In x, Out y, std::int64_t count) {
    by_type(x.type, [&](auto* t) {
      Launcher::elementwise(count, FeatureElement{as(x, t), as(y, t), feature});
    });
  }

  static void feature_backward(Feature feature, In x, In d_y, Out d_x, std::int64_t count) {
    by_type(x.type, [&](auto* t) {
      Launcher::elementwise(count,
                            FeatureBackwardElement{as(x, t), as(d_y, t), as(d_x, t), feature});
    });
  }

  static void accumulate(In x, float* sum, std::int64_t count) {
    by_type(x.type, [&](auto* t) {
      Launcher::elementwise(count, AccumulateElement{as(x, t), sum});
    });
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
