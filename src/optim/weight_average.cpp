#include "optim/weight_average.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>

namespace transnormer {
namespace {

constexpr std::int64_t kStretch = 1 << 20;  // elements that change places at once

}  // namespace

WeightAverage::WeightAverage(const FlatParameters& weights, double decay)
    : weights_(weights), decay_(decay) {
  for (const FlatBuffer& buffer : weights_.buffers()) {
    mean_.push_back(at::empty_like(buffer.values));
    scratch_.push_back(
        at::empty({std::min(kStretch, buffer.values.numel())}, buffer.values.options()));
  }
  restart();
}

void WeightAverage::restart() {
  for (std::size_t i = 0; i < mean_.size(); ++i) {
    mean_[i].copy_(weights_.buffers()[i].values);
  }
}

void WeightAverage::update() {
  const at::NoGradGuard no_grad;
  for (std::size_t i = 0; i < mean_.size(); ++i) {
    mean_[i].lerp_(weights_.buffers()[i].values, 1 - decay_);
  }
}

std::vector<NamedTensor> WeightAverage::named(const std::vector<NamedTensor>& model) const {
  const std::vector<at::Tensor> means = weights_.views_of(mean_);
  std::vector<NamedTensor> named = model;
  auto mean = means.begin();
  for (NamedTensor& tensor : named) {
    if (tensor.trainable) {
      tensor.tensor = *mean++;
    }
  }
  return named;
}

// In place, so that whatever points to the weights' memory sees the mean; a stretch at a time, so
// that no third copy of all is needed; and without new memory, so that it cannot fail half-way.
void WeightAverage::exchange() {
  const at::NoGradGuard no_grad;
  for (std::size_t i = 0; i < mean_.size(); ++i) {
    const at::Tensor& values = weights_.buffers()[i].values;
    for (std::int64_t begin = 0; begin < values.numel(); begin += kStretch) {
      const std::int64_t end = std::min(begin + kStretch, values.numel());
      const at::Tensor weight = values.slice(0, begin, end);
      const at::Tensor mean = mean_[i].slice(0, begin, end);
      const at::Tensor kept = scratch_[i].slice(0, 0, end - begin);
      kept.copy_(weight);
      weight.copy_(mean);
      mean.copy_(kept);
    }
  }
  // They share memory with what was changed, but not its version.
  for (const NamedTensor& parameter : weights_.parameters()) {
    torch::autograd::impl::bump_version(parameter.tensor);
  }
}

WeightAverage::InPlace::InPlace(WeightAverage& average) : average_(average) {
  average_.exchange();
}

WeightAverage::InPlace::~InPlace() {
  try {
    average_.exchange();
  } catch (const std::exception&) {
    // Only a device that fails does so, and then whatever is asked of it next.
  }
}

}  // namespace transnormer
