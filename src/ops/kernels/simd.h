// Vectors of the instruction set that this file is compiled for, by the compiler's vector types.
// Included by the kernels' sources only; everything lives in the instruction set's namespace.
#pragma once

#include <cstdint>

#include "ops/kernels/kernels.h"
#if defined(__SSE4_1__)
#include <immintrin.h>
#endif

namespace transnormer::ops::kernels::TRANSNORMER_ISA {

#if defined(__AVX512F__)
inline constexpr int kBytes = 64;
#elif defined(__AVX2__)
inline constexpr int kBytes = 32;
#else
inline constexpr int kBytes = 16;
#endif
inline constexpr int kLanes = kBytes / 4;

using F = float __attribute__((vector_size(kBytes)));
using I = std::int32_t __attribute__((vector_size(kBytes)));
using U = std::uint32_t __attribute__((vector_size(kBytes)));
using W = std::uint64_t __attribute__((vector_size(kBytes)));
using H = std::uint16_t __attribute__((vector_size(kBytes / 2)));

struct Bf16 {
  std::uint16_t bits;
};

inline F splat(float x) {
  return x - F{};
}

inline F load(const float* p) {
  F v;
  __builtin_memcpy(&v, p, sizeof v);
  return v;
}

inline F load(const Bf16* p) {
  H h;
  __builtin_memcpy(&h, p, sizeof h);
  return reinterpret_cast<F>(__builtin_convertvector(h, U) << 16);
}

inline void store(float* p, F v) {
  __builtin_memcpy(p, &v, sizeof v);
}

// To the nearest, ties to even; not-a-number stays one.
inline void store(Bf16* p, F v) {
  const U bits = reinterpret_cast<U>(v);
  const U rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16;
  const H h = __builtin_convertvector(v == v ? rounded : (U{} + 0x7FC0), H);
  __builtin_memcpy(p, &h, sizeof h);
}

// The first `count` elements, zeros behind them.
template <typename T>
inline F load_part(const T* p, std::int64_t count) {
  T part[kLanes] = {};
  for (std::int64_t i = 0; i < count; ++i) {
    part[i] = p[i];
  }
  return load(part);
}

template <typename T>
inline void store_part(T* p, F v, std::int64_t count) {
  T part[kLanes];
  store(part, v);
  for (std::int64_t i = 0; i < count; ++i) {
    p[i] = part[i];
  }
}

#if defined(__AVX512BW__) && defined(__AVX512VL__)
inline __mmask16 lanes_below(std::int64_t count) {
  return static_cast<__mmask16>((1U << count) - 1U);
}

inline F load_part(const float* p, std::int64_t count) {
  return reinterpret_cast<F>(_mm512_maskz_loadu_ps(lanes_below(count), p));
}
inline F load_part(const Bf16* p, std::int64_t count) {
  const auto bits = reinterpret_cast<H>(_mm256_maskz_loadu_epi16(lanes_below(count), p));
  return reinterpret_cast<F>(__builtin_convertvector(bits, U) << 16);
}
inline void store_part(float* p, F v, std::int64_t count) {
  _mm512_mask_storeu_ps(p, lanes_below(count), reinterpret_cast<__m512>(v));
}
inline void store_part(Bf16* p, F v, std::int64_t count) {
  Bf16 part[kLanes];
  store(part, v);
  _mm256_mask_storeu_epi16(p, lanes_below(count),
                           _mm256_loadu_si256(reinterpret_cast<const __m256i*>(part)));
}
#endif

template <typename T>
inline F load(const T* p, std::int64_t count) {
  return count >= kLanes ? load(p) : load_part(p, count);
}

template <typename T>
inline void store(T* p, F v, std::int64_t count) {
  if (count >= kLanes) {
    store(p, v);
  } else {
    store_part(p, v, count);
  }
}

inline F maximum(F a, F b) {
  return a > b ? a : b;
}

inline I iota() {
  I lanes{};
  for (int i = 0; i < kLanes; ++i) {
    lanes[i] = i;
  }
  return lanes;
}

inline float sum(F v) {
  for (int width = kLanes / 2; width > 0; width /= 2) {
    v += __builtin_shuffle(v, iota() ^ width);
  }
  return v[0];
}

inline float maximum(F v) {
  for (int width = kLanes / 2; width > 0; width /= 2) {
    v = maximum(v, __builtin_shuffle(v, iota() ^ width));
  }
  return v[0];
}

// Neighbours (0,1), (2,3), .. change places.
inline F swap_pairs(F v) {
  I places = iota();
  return __builtin_shuffle(v, places ^ 1);
}

// e^x with a relative error of about 1e-7: x = n ln2 + r, |r| <= ln2 / 2, and a polynomial in r
// (coefficients of the Cephes library's expf). 0 below -87.3, infinity above 88.3.
inline F exp(F x) {
  const F low = splat(-87.33654F);
  const F high = splat(88.72283F);
  F clamped = x < low ? low : x;
  clamped = clamped > high ? high : clamped;
  const F magic = splat(12582912.F);  // 1.5 * 2^23: adding it rounds to an integer
  const F shifted = clamped * 1.44269504F + magic;
  const F n = shifted - magic;
  const F r = (clamped - n * 0.693359375F) - n * -2.12194440e-4F;
  F p = splat(1.9875691500e-4F);
  p = p * r + 1.3981999507e-3F;
  p = p * r + 8.3334519073e-3F;
  p = p * r + 4.1665795894e-2F;
  p = p * r + 1.6666665459e-1F;
  p = p * r + 5.0000001201e-1F;
  p = p * (r * r) + r + 1.F;
  const I exponent = reinterpret_cast<I>(shifted) - (0x4B400000 - 127);
  const F power = reinterpret_cast<F>(exponent << 23);
  return x < low ? F{} : p * power;
}

// The arithmetic of ops/kernels/feature.h.
struct Vectors {
  static F select(I condition, F a, F b) { return condition ? a : b; }
  static F exp(F x) { return TRANSNORMER_ISA::exp(x); }
  static F expm1(F x) { return TRANSNORMER_ISA::exp(x) - 1.F; }
  static F reciprocal(F x) { return 1.F / x; }
  static F number(F, float c) { return splat(c); }
};

// The 64-bit products of the even lanes.
inline W multiply_even(U a, U b) {
#if defined(__AVX512F__)
  return reinterpret_cast<W>(
      _mm512_maskz_mul_epu32(0xFF, reinterpret_cast<__m512i>(a), reinterpret_cast<__m512i>(b)));
#elif defined(__AVX2__)
  return reinterpret_cast<W>(
      _mm256_mul_epu32(reinterpret_cast<__m256i>(a), reinterpret_cast<__m256i>(b)));
#elif defined(__SSE4_1__)
  return reinterpret_cast<W>(
      _mm_mul_epu32(reinterpret_cast<__m128i>(a), reinterpret_cast<__m128i>(b)));
#else
  return (reinterpret_cast<W>(a) & 0xFFFFFFFF) * (reinterpret_cast<W>(b) & 0xFFFFFFFF);
#endif
}

// Calls body(T) with the element type of `x`, as a null pointer of it.
template <typename Body>
inline void by_type(Element type, Body body) {
  if (type == Element::bf16) {
    body(static_cast<Bf16*>(nullptr));
  } else {
    body(static_cast<float*>(nullptr));
  }
}

template <typename T>
inline const T* as(In x, T*) {
  return static_cast<const T*>(x.data);
}
template <typename T>
inline T* as(Out x, T*) {
  return static_cast<T*>(x.data);
}

}  // namespace transnormer::ops::kernels::TRANSNORMER_ISA
