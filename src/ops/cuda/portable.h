// What the kernels' bodies are written in. They are compiled twice: by nvcc for the GPU, and by the
// host's compiler for tests, which run the same bodies thread by thread (tests/ops/emulation.h).
// No LibTorch here.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

#include "ops/kernels/device.h"
#include "ops/kernels/kernels.h"

#if defined(__CUDACC__)
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#endif

namespace transnormer::ops::cuda {

using kernels::Element;
using kernels::In;
using kernels::Out;

struct Bf16 {
  std::uint16_t bits;
};
struct Half {
  std::uint16_t bits;
};

TRANSNORMER_DEVICE inline float value(float x) {
  return x;
}
TRANSNORMER_DEVICE inline float value(Bf16 x) {
  return std::bit_cast<float>(std::uint32_t{x.bits} << 16);
}

// To the nearest, ties to even.
template <typename T>
TRANSNORMER_DEVICE T rounded(float x);

template <>
TRANSNORMER_DEVICE inline float rounded<float>(float x) {
  return x;
}

#if defined(__CUDACC__)
TRANSNORMER_DEVICE inline float value(Half x) {
  return __half2float(__ushort_as_half(x.bits));
}
template <>
TRANSNORMER_DEVICE inline Bf16 rounded<Bf16>(float x) {
  return {__bfloat16_as_ushort(__float2bfloat16_rn(x))};
}
template <>
TRANSNORMER_DEVICE inline Half rounded<Half>(float x) {
  return {__half_as_ushort(__float2half_rn(x))};
}
#else
// Exact: half's subnormal numbers are normal in single precision.
inline float value(Half x) {
  const std::uint32_t sign = std::uint32_t{x.bits & 0x8000U} << 16;
  const std::uint32_t rest = x.bits & 0x7FFFU;
  if (rest >= 0x7C00) {
    return std::bit_cast<float>(sign | 0x7F800000U | ((rest & 0x3FFU) << 13));
  }
  // Read as the fraction of a number that is 2^112 times too small.
  return std::bit_cast<float>(sign | (rest << 13)) * 0x1.0p112F;
}
template <>
inline Bf16 rounded<Bf16>(float x) {
  if (x != x) {
    return {0x7FC0};
  }
  const auto bits = std::bit_cast<std::uint32_t>(x);
  return {static_cast<std::uint16_t>((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16)};
}
template <>
inline Half rounded<Half>(float x) {
  const auto sign = static_cast<std::uint16_t>((std::bit_cast<std::uint32_t>(x) >> 16) & 0x8000U);
  const float size = std::fabs(x);
  if (x != x) {
    return {static_cast<std::uint16_t>(sign | 0x7E00U)};
  }
  if (size >= 65520.F) {
    return {static_cast<std::uint16_t>(sign | 0x7C00U)};
  }
  if (size < 0x1.0p-14F) {  // subnormal: adding 2^-1 leaves the multiples of 2^-24
    const auto bits =
        std::bit_cast<std::uint32_t>(size + 0.5F) - std::bit_cast<std::uint32_t>(0.5F);
    return {static_cast<std::uint16_t>(sign | bits)};
  }
  const auto bits = std::bit_cast<std::uint32_t>(size);
  const std::uint32_t near = bits + 0xFFF + ((bits >> 13) & 1);
  return {static_cast<std::uint16_t>(sign | ((near >> 13) - (112U << 10)))};
}
#endif

// An element of a tensor whose type is known at run time.
TRANSNORMER_DEVICE inline float load(const In& x, std::int64_t i) {
  switch (x.type) {
    case Element::bf16:
      return value(static_cast<const Bf16*>(x.data)[i]);
    case Element::f16:
      return value(static_cast<const Half*>(x.data)[i]);
    default:
      return static_cast<const float*>(x.data)[i];
  }
}
TRANSNORMER_DEVICE inline void store(const Out& x, std::int64_t i, float to) {
  switch (x.type) {
    case Element::bf16:
      static_cast<Bf16*>(x.data)[i] = rounded<Bf16>(to);
      break;
    case Element::f16:
      static_cast<Half*>(x.data)[i] = rounded<Half>(to);
      break;
    default:
      static_cast<float*>(x.data)[i] = to;
  }
}

// Calls body(T*) with the element type, as a null pointer of it.
template <typename Body>
void by_type(Element type, Body body) {
  switch (type) {
    case Element::bf16:
      body(static_cast<Bf16*>(nullptr));
      break;
    case Element::f16:
      body(static_cast<Half*>(nullptr));
      break;
    case Element::f32:
      body(static_cast<float*>(nullptr));
  }
}

template <typename T>
const T* as(In x, T*) {
  return static_cast<const T*>(x.data);
}
template <typename T>
T* as(Out x, T*) {
  return static_cast<T*>(x.data);
}

// Rows and columns by the short division where the numbers allow it: a GPU has none in hardware.
TRANSNORMER_DEVICE inline std::int64_t quotient(std::int64_t i, std::int64_t by) {
  constexpr std::int64_t kShort = 0x100000000;
  return i < kShort && by < kShort ? static_cast<std::int64_t>(static_cast<std::uint32_t>(i) /
                                                               static_cast<std::uint32_t>(by))
                                   : i / by;
}

// The arithmetic of ops/kernels/feature.h.
struct Scalars {
  TRANSNORMER_DEVICE static float select(bool condition, float a, float b) {
    return condition ? a : b;
  }
  TRANSNORMER_DEVICE static float exp(float x) { return expf(x); }
  TRANSNORMER_DEVICE static float expm1(float x) { return expm1f(x); }
  // Exact division is a call on a GPU, around which registers are spilled.
  TRANSNORMER_DEVICE static float reciprocal(float x) {
#ifdef __CUDA_ARCH__
    return __fdividef(1.F, x);
#else
    return 1.F / x;
#endif
  }
  TRANSNORMER_DEVICE static float number(float, float c) { return c; }
};

struct Sum {
  TRANSNORMER_DEVICE float operator()(float a, float b) const { return a + b; }
};

}  // namespace transnormer::ops::cuda
