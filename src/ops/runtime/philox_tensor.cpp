#include "ops/runtime/philox_tensor.h"

#include <ATen/ATen.h>

#include <array>
#include <cmath>

namespace transnormer::ops {
namespace {

constexpr std::int64_t kLow32 = 0xFFFFFFFF;

using Words = std::array<at::Tensor, 4>;

// The 64-bit product of two 32-bit numbers wraps in int64 without losing bits; the mask after the
// arithmetic shift makes it a logical one.
at::Tensor low_half(const at::Tensor& product) {
  return product.bitwise_and(kLow32);
}
at::Tensor high_half(const at::Tensor& product) {
  return at::bitwise_right_shift(product, 32).bitwise_and_(kLow32);
}

Words philox(PhiloxKey key, Words counter) {
  for (int round = 0; round < 10; ++round) {
    const at::Tensor a = counter[0] * std::int64_t{0xD2511F53};
    const at::Tensor b = counter[2] * std::int64_t{0xCD9E8D57};
    counter = {
        high_half(b).bitwise_xor(counter[1]).bitwise_xor_(std::int64_t{key.low}), low_half(b),
        high_half(a).bitwise_xor(counter[3]).bitwise_xor_(std::int64_t{key.high}), low_half(a)};
    key.low += 0x9E3779B9;
    key.high += 0xBB67AE85;
  }
  return counter;
}

Words counter_of(const at::Tensor& group, const at::Tensor& sample) {
  return {low_half(group), high_half(group), low_half(sample), high_half(sample)};
}

}  // namespace

PhiloxKey philox_key(const DropoutKey& key) {
  TORCH_CHECK(key.live == nullptr, "dropout by tensor operations has no live counters");
  return transnormer::philox_key(key.seed, key.update, key.layer, key.site);
}

at::Tensor philox_bits(std::int64_t samples, std::int64_t elements, const DropoutKey& key,
                       const at::Device& device) {
  const auto options = at::TensorOptions(device).dtype(at::kLong);
  const at::Tensor sample =
      at::arange(key.first_sample, key.first_sample + samples, options).unsqueeze(1);
  const std::int64_t first = key.first_element;
  const at::Tensor group = at::arange(first / 4, (first + elements + 3) / 4, options).unsqueeze(0);
  Words words = philox(philox_key(key), counter_of(group, sample));
  for (at::Tensor& word : words) {
    word = word.expand({samples, group.size(1)});
  }
  return at::bitwise_right_shift(at::stack(words, -1), 8).flatten(1).narrow(1, first % 4, elements);
}

at::Tensor philox_bits_at(const at::Tensor& sample, const at::Tensor& element,
                          const DropoutKey& key) {
  const at::Tensor number = element + key.first_element;
  const at::Tensor group = at::bitwise_right_shift(number, 2);
  const Words words = philox(philox_key(key), counter_of(group, sample + key.first_sample));
  const at::Tensor place = number.bitwise_and(3);
  at::Tensor bits = words[0];
  for (std::int64_t i = 1; i < 4; ++i) {
    bits = at::where(place == i, words[static_cast<std::size_t>(i)], bits);
  }
  return at::bitwise_right_shift(bits, 8);
}

std::uint32_t dropout_threshold(double p) {
  return static_cast<std::uint32_t>(std::ceil(p * 0x1.0p24));
}

kernels::Mask kernel_mask(const DropoutKey& key, double p, std::int64_t sample,
                          std::int64_t first) {
  const bool live = key.live != nullptr;
  const PhiloxKey mixed = live ? PhiloxKey{} : philox_key(key);
  return {.key_low = mixed.low,
          .key_high = mixed.high,
          .sample = static_cast<std::uint64_t>(live ? sample : key.first_sample + sample),
          .first = static_cast<std::uint64_t>(key.first_element + first),
          .threshold = dropout_threshold(p),
          .scale = static_cast<float>(1 / (1 - p)),
          .live = key.live,
          .seed = key.seed,
          .layer = key.layer,
          .site = key.site};
}

at::Tensor dropout_mask_of(const at::Tensor& bits, double p) {
  return bits.ge(std::int64_t{dropout_threshold(p)}).to(at::kFloat).mul_(1 / (1 - p));
}

}  // namespace transnormer::ops
