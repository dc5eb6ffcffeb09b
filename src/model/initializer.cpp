#include "model/initializer.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>
#include <string_view>
#include <thread>
#include <vector>

#include "util/philox.h"

namespace transnormer {
namespace {

// Keeps these keys apart from those of dropout and of the sample order.
constexpr std::uint64_t kDomain = 0x77656967687473;

// FNV-1a.
constexpr std::uint64_t hash_name(std::string_view name) {
  std::uint64_t hash = 0xCBF29CE484222325;
  for (const char c : name) {
    hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001B3;
  }
  return hash;
}

// Calls make(words, out) for every group of four elements; the group's number is the counter.
template <typename Make>
void fill(const at::Tensor& tensor, std::uint64_t seed, const std::string& name, const Make& make) {
  at::NoGradGuard no_grad;
  const PhiloxKey key = philox_key(kDomain, seed, hash_name(name));
  const at::Tensor host = tensor.is_cpu() && tensor.is_contiguous()
                              ? tensor.detach()
                              : at::empty(tensor.sizes(), at::kFloat);
  float* const data = host.data_ptr<float>();
  const std::int64_t size = host.numel();
  const std::int64_t groups = (size + 3) / 4;
  const auto work = [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t group = begin; group < end; ++group) {
      const auto number = static_cast<std::uint64_t>(group);
      const std::array<float, 4> values =
          make(philox4x32(key, {static_cast<std::uint32_t>(number),
                                static_cast<std::uint32_t>(number >> 32), 0, 0}));
      std::copy_n(values.begin(), std::min<std::int64_t>(4, size - 4 * group), data + 4 * group);
    }
  };
  constexpr std::int64_t kLeastGroupsOfAThread = 1 << 14;
  const std::int64_t threads = std::clamp<std::int64_t>(groups / kLeastGroupsOfAThread, 1,
                                                        std::max(1, at::get_num_threads()));
  {
    std::vector<std::jthread> workers;
    for (std::int64_t i = 1; i < threads; ++i) {
      workers.emplace_back(work, groups * i / threads, groups * (i + 1) / threads);
    }
    work(0, groups / threads);
  }
  if (!host.is_alias_of(tensor)) {
    tensor.detach().copy_(host);
  }
  torch::autograd::impl::bump_version(tensor);  // writing through a pointer does not
}

}  // namespace

void Initializer::uniform(const at::Tensor& tensor, const std::string& name, double bound) const {
  const auto scale = static_cast<float>(bound);
  fill(tensor, seed_, name, [scale](const PhiloxWords& words) {
    std::array<float, 4> values{};
    std::transform(words.begin(), words.end(), values.begin(),
                   [scale](std::uint32_t word) { return scale * (2 * philox_uniform(word) - 1); });
    return values;
  });
}

void Initializer::normal(const at::Tensor& tensor, const std::string& name, double std) const {
  const auto scale = static_cast<float>(std);
  // Box and Muller, two pairs a group; half a unit keeps the logarithm's argument above zero.
  const auto pair = [scale](std::uint32_t first, std::uint32_t second) {
    const float radius =
        scale * std::sqrt(-2 * std::log((static_cast<float>(first) + 0.5F) * 0x1.0p-32F));
    const float angle = 2 * std::numbers::pi_v<float> * philox_uniform(second);
    return std::array{radius * std::cos(angle), radius * std::sin(angle)};
  };
  fill(tensor, seed_, name, [pair](const PhiloxWords& words) {
    const auto [a, b] = pair(words[0], words[1]);
    const auto [c, d] = pair(words[2], words[3]);
    return std::array{a, b, c, d};
  });
}

}  // namespace transnormer
