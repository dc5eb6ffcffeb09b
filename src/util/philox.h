// Philox 4x32-10, a counter-based random generator: the same key and counter give the same four
// words, with no state between calls. Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as
// easy as 1, 2, 3", SC 2011.
#pragma once

#include <array>
#include <cstdint>

namespace transnormer {

using PhiloxWords = std::array<std::uint32_t, 4>;

struct PhiloxKey {
  std::uint32_t low = 0;
  std::uint32_t high = 0;
};

constexpr PhiloxWords philox4x32(PhiloxKey key, PhiloxWords counter) {
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t a = std::uint64_t{0xD2511F53} * counter[0];
    const std::uint64_t b = std::uint64_t{0xCD9E8D57} * counter[2];
    counter = {
        static_cast<std::uint32_t>(b >> 32) ^ counter[1] ^ key.low, static_cast<std::uint32_t>(b),
        static_cast<std::uint32_t>(a >> 32) ^ counter[3] ^ key.high, static_cast<std::uint32_t>(a)};
    key.low += 0x9E3779B9;
    key.high += 0xBB67AE85;
  }
  return counter;
}

// Spreads any 64-bit values over a key, so that keys made of small numbers do not collide
// (SplitMix64's finaliser, folded over the values).
template <typename... Values>
constexpr PhiloxKey philox_key(Values... values) {
  std::uint64_t mixed = 0x9E3779B97F4A7C15;
  const auto fold = [&mixed](std::uint64_t value) {
    mixed += value + 0x9E3779B97F4A7C15;
    mixed = (mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9;
    mixed = (mixed ^ (mixed >> 27)) * 0x94D049BB133111EB;
    mixed ^= mixed >> 31;
  };
  (fold(static_cast<std::uint64_t>(values)), ...);
  return {static_cast<std::uint32_t>(mixed), static_cast<std::uint32_t>(mixed >> 32)};
}

// The first `below` integers are equally likely up to 2^-64.
constexpr std::uint64_t philox_below(PhiloxWords words, std::uint64_t below) {
  const std::uint64_t value = (std::uint64_t{words[0]} << 32) | words[1];
  __extension__ using Wide = unsigned __int128;
  return static_cast<std::uint64_t>((static_cast<Wide>(value) * below) >> 64);
}

// In [0, 1), from the upper 24 bits: exact in single precision.
constexpr float philox_uniform(std::uint32_t word) {
  return static_cast<float>(word >> 8) * 0x1.0p-24F;
}

}  // namespace transnormer
