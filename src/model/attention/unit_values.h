// The weights of an attention whose output is linear in its values, found by values that are unit
// vectors.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>

namespace transnormer {

// attend: values fp32 [batch, time, heads, width] -> the same sizes, any type. Result: fp32 [batch,
// heads, time, time], the element (t, s) the factor of s's value in t's output; by time / width
// calls.
[[nodiscard]] at::Tensor weights_of_values(
    std::int64_t batch, std::int64_t time, std::int64_t heads, std::int64_t width,
    at::Device device, const std::function<at::Tensor(const at::Tensor& values)>& attend);

}  // namespace transnormer
