// Products of few rows, which take as long as reading the weights does.
#include "ops/kernels/simd.h"
#include "ops/kernels/step_functions.h"

namespace transnormer::ops::kernels::TRANSNORMER_ISA {
namespace {

// The sum of each of kLanes vectors, in the order of sum(): the halves are folded onto each other,
// two vectors at a time. Overwrites them.
inline F sums_of(F (&v)[kLanes]) {
  const I lane = iota();
#pragma GCC unroll 4
  for (int width = kLanes / 2; width > 0; width /= 2) {
    // Lanes without the bit `width` are those of the first vector, the others the second's.
    const I own = lane + ((lane & width) != 0 ? I{} + kLanes : I{});
    const I other = (lane ^ width) + ((lane & width) != 0 ? I{} + kLanes : I{});
#pragma GCC unroll 8
    for (int i = 0; i < width; ++i) {
      v[i] =
          __builtin_shuffle(v[i], v[i + width], own) + __builtin_shuffle(v[i], v[i + width], other);
    }
  }
  return v[0];
}

template <typename T>
struct Operands {
  const FewRows& shape;
  const T* x;
  const T* weight;
  const T* bias;
  T* y;
};

// kLanes sums: `rows` rows from `row` on by the outputs from `output` on. The weights of the
// outputs that follow are asked for from memory meanwhile.
template <int rows, typename T>
inline void tile(const Operands<T>& p, std::int64_t row, std::int64_t output) {
  constexpr int outputs = kLanes / rows;
  const std::int64_t in = p.shape.in;
  const std::int64_t here = p.shape.last - output < outputs ? p.shape.last - output : outputs;
  const std::int64_t next = output + outputs < p.shape.last ? outputs * in : 0;
  const T* x = p.x + row * in;
  const T* w[outputs];
  F sums[kLanes];
#pragma GCC unroll 16
  for (int o = 0; o < outputs; ++o) {
    w[o] = p.weight + (output + (o < here ? o : 0)) * in;
  }
#pragma GCC unroll 16
  for (int i = 0; i < kLanes; ++i) {
    sums[i] = F{};
  }
  const auto add = [&](auto at) {
    F right[rows];
#pragma GCC unroll 16
    for (int r = 0; r < rows; ++r) {
      right[r] = at(x + r * in);
    }
#pragma GCC unroll 16
    for (int o = 0; o < outputs; ++o) {
      const F left = at(w[o]);
#pragma GCC unroll 16
      for (int r = 0; r < rows; ++r) {
        sums[r * outputs + o] += left * right[r];
      }
    }
  };
  std::int64_t k = 0;
  for (; k + kLanes <= in; k += kLanes) {
#pragma GCC unroll 16
    for (int o = 0; o < outputs; ++o) {
      __builtin_prefetch(w[o] + next + k);
    }
    add([k](const T* from) { return load(from + k); });
  }
  if (k < in) {
    add([k, in](const T* from) { return load_part(from + k, in - k); });
  }
  float biases[kLanes] = {};
  if (p.bias != nullptr) {
    for (int i = 0; i < kLanes; ++i) {
      const int o = i % outputs;
      T one[kLanes] = {p.bias[output + (o < here ? o : 0)]};
      biases[i] = load(one)[0];
    }
  }
  T results[kLanes];
  store(results, sums_of(sums) + load(biases));
  for (int r = 0; r < rows; ++r) {
    for (std::int64_t o = 0; o < here; ++o) {
      p.y[(row + r) * p.shape.out + output + o] = results[r * outputs + o];
    }
  }
}

template <int rows, typename T>
inline void row_tiles(const Operands<T>& p, std::int64_t row, std::int64_t first,
                      std::int64_t last) {
  for (std::int64_t output = first; output < last; output += kLanes / rows) {
    tile<rows>(p, row, output);
  }
}

// Some outputs at a time, whose weights stay in the nearest cache while the rows take turns.
template <typename T>
void product_of(const Operands<T>& p) {
  for (std::int64_t first = p.shape.first; first < p.shape.last; first += kOutputsTogether) {
    const std::int64_t rest = p.shape.last - first;
    const std::int64_t last = first + (rest < kOutputsTogether ? rest : kOutputsTogether);
    std::int64_t row = 0;
    if constexpr (kLanes >= 16) {
      for (; row + 4 <= p.shape.rows; row += 4) {
        row_tiles<4>(p, row, first, last);
      }
    }
    for (; row + 2 <= p.shape.rows; row += 2) {
      row_tiles<2>(p, row, first, last);
    }
    if (row < p.shape.rows) {
      row_tiles<1>(p, row, first, last);
    }
  }
}

}  // namespace

void product(const FewRows& shape, In x, In weight, In bias, Out y) {
  by_type(weight.type, [&](auto* t) {
    product_of(Operands{shape, as(x, t), as(weight, t), as(bias, t), as(y, t)});
  });
}

}  // namespace transnormer::ops::kernels::TRANSNORMER_ISA
