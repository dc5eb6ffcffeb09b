#include "train/gradient_statistics.h"

#include <algorithm>
#include <cmath>
#include <unordered_map>

namespace transnormer {
namespace {

// How many elements of each gradient are not zero, in one transfer.
std::vector<std::int64_t> count_nonzero(const std::vector<at::Tensor>& gradients) {
  std::vector<at::Tensor> counts;
  for (const at::Tensor& gradient : gradients) {
    counts.push_back(at::count_nonzero(gradient));
  }
  const at::Tensor all = at::stack(counts).to(at::kCPU);
  const auto* first = all.const_data_ptr<std::int64_t>();
  return {first, first + all.numel()};
}

}  // namespace

GradientStatistics::GradientStatistics(const std::vector<NamedTensor>& parameters,
                                       const std::vector<ParameterGroup>& groups) {
  std::unordered_map<const at::TensorImpl*, std::size_t> indices;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    groups_["all"].push_back(i);
    indices[parameters[i].tensor.unsafeGetTensorImpl()] = i;
  }
  for (const ParameterGroup& group : groups) {
    for (const at::Tensor& tensor : group.parameters) {
      const auto index = indices.find(tensor.unsafeGetTensorImpl());
      if (index != indices.end()) {  // else it is not trained
        groups_[group.name].push_back(index->second);
      }
    }
  }
}

std::map<std::string, log::GradientStats> GradientStatistics::measure(
    const std::vector<at::Tensor>& gradients, const at::Tensor& norms,
    std::map<std::string, RunningMoments>& moments) const {
  const at::NoGradGuard no_grad;
  const at::Tensor norms_here = norms.to(at::kCPU).contiguous();
  const auto* const norm = norms_here.const_data_ptr<double>();
  const std::vector<std::int64_t> nonzero = count_nonzero(gradients);
  std::map<std::string, log::GradientStats> result;
  for (const auto& [name, members] : groups_) {
    double squares = 0;
    std::int64_t elements = 0;
    std::int64_t not_zero = 0;
    for (const std::size_t i : members) {
      squares += norm[i] * norm[i];
      elements += gradients[i].numel();
      not_zero += nonzero[i];
    }
    RunningMoments& running = moments[name];
    running.add(std::sqrt(squares));
    result[name] = {
        .norm = std::sqrt(squares),
        .zero_share = static_cast<double>(elements - not_zero) / static_cast<double>(elements),
        .mean = running.mean,
        .relative_std = running.relative_std()};
  }
  return result;
}

std::map<std::string, std::vector<double>> GradientStatistics::sample(
    const std::vector<at::Tensor>& gradients, std::int64_t count) const {
  const at::NoGradGuard no_grad;
  std::map<std::string, std::vector<double>> samples;
  for (const auto& [name, members] : groups_) {
    std::int64_t elements = 0;
    for (const std::size_t i : members) {
      elements += gradients[i].numel();
    }
    const std::int64_t stride = std::max<std::int64_t>((elements + count - 1) / count, 1);
    std::vector<at::Tensor> pieces;
    std::int64_t skip = 0;  // elements to the next one taken
    for (const std::size_t i : members) {
      const at::Tensor flat = gradients[i].reshape({-1});
      if (skip < flat.numel()) {
        pieces.push_back(flat.slice(0, skip, flat.numel(), stride));
        skip += pieces.back().numel() * stride;
      }
      skip -= flat.numel();
    }
    const at::Tensor all = at::cat(pieces).to(at::kCPU, at::kDouble).contiguous();
    const auto* first = all.const_data_ptr<double>();
    samples[name] = {first, first + all.numel()};
  }
  return samples;
}

}  // namespace transnormer
