// Stretches of the dropout mask, many counters at once (see util/philox.h for the generator).
#pragma once

#include "ops/kernels/simd.h"

namespace transnormer::ops::kernels::TRANSNORMER_ISA {

inline constexpr std::int64_t kMaskTile = 4 * kLanes;

struct HighLow {
  U high;
  U low;
};

inline HighLow multiply(U x, std::uint32_t factor) {
  constexpr std::uint64_t low32 = 0xFFFFFFFF;
  const U f = U{} + factor;
  const W even = multiply_even(x, f);
  const W odd = multiply_even(reinterpret_cast<U>(reinterpret_cast<W>(x) >> 32), f);
  return {reinterpret_cast<U>((even >> 32) | (odd & ~low32)),
          reinterpret_cast<U>((even & low32) | (odd << 32))};
}

// Runs of `width` lanes of a and b in turn, from lane `first` of each on.
template <int width>
inline F interleave(F a, F b, int first) {
  I places{};
  for (int i = 0; i < kLanes; ++i) {
    places[i] = first + i / (2 * width) * width + i % width + (i / width % 2) * kLanes;
  }
  return __builtin_shuffle(a, b, places);
}

// The scaled mask of kMaskTile elements from number 4 * group on.
inline void mask_tile(const Mask& m, std::uint64_t group, float* mask) {
  const U base = U{} + static_cast<std::uint32_t>(group);
  U c0 = base + reinterpret_cast<U>(iota());
  // A carry where the low half has wrapped; comparison yields -1.
  U c1 = (U{} + static_cast<std::uint32_t>(group >> 32)) - reinterpret_cast<U>(c0 < base);
  U c2 = U{} + static_cast<std::uint32_t>(m.sample);
  U c3 = U{} + static_cast<std::uint32_t>(m.sample >> 32);
  std::uint32_t low = m.key_low;
  std::uint32_t high = m.key_high;
  for (int round = 0; round < 10; ++round) {
    const HighLow a = multiply(c0, 0xD2511F53);
    const HighLow b = multiply(c2, 0xCD9E8D57);
    c0 = b.high ^ c1 ^ low;
    c1 = b.low;
    c2 = a.high ^ c3 ^ high;
    c3 = a.low;
    low += 0x9E3779B9;
    high += 0xBB67AE85;
  }
  const auto scaled = [&m](U word) { return (word >> 8) >= m.threshold ? splat(m.scale) : F{}; };
  // Element 4 * lane + word comes from lane `lane` of word `word`.
  const F a = scaled(c0), b = scaled(c1), c = scaled(c2), d = scaled(c3);
  const F ab[2] = {interleave<1>(a, b, 0), interleave<1>(a, b, kLanes / 2)};
  const F cd[2] = {interleave<1>(c, d, 0), interleave<1>(c, d, kLanes / 2)};
  for (int half = 0; half < 2; ++half) {
    store(mask + 2 * half * kLanes, interleave<2>(ab[half], cd[half], 0));
    store(mask + (2 * half + 1) * kLanes, interleave<2>(ab[half], cd[half], kLanes / 2));
  }
}

// Calls body(place, mask, count) for consecutive parts of the `count` elements from m.first on.
template <typename Body>
inline void for_mask_tiles(const Mask& m, std::int64_t count, Body body) {
  alignas(64) float mask[kMaskTile];
  std::uint64_t group = m.first / 4;
  std::int64_t skip = static_cast<std::int64_t>(m.first % 4);
  for (std::int64_t place = 0; place < count; group += kLanes) {
    mask_tile(m, group, mask);
    const std::int64_t rest = count - place;
    const std::int64_t n = kMaskTile - skip < rest ? kMaskTile - skip : rest;
    body(place, mask + skip, n);
    place += n;
    skip = 0;
  }
}

}  // namespace transnormer::ops::kernels::TRANSNORMER_ISA
