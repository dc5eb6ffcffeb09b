#include "optim/flat_parameters.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <memory>
#include <stdexcept>
#include <utility>

#include "util/memory.h"

namespace transnormer {
namespace {

constexpr std::int64_t kAlignment = 64;  // bytes: a cache line, and the widest vector

// The parameters of one storage, by their numbers, in the order of their memory.
using Joint = std::vector<std::size_t>;

std::int64_t storage_elements(const at::Tensor& tensor) {
  return static_cast<std::int64_t>(tensor.storage().nbytes() / tensor.element_size());
}

void require_filled(const Joint& joint, const std::vector<NamedTensor>& parameters) {
  std::int64_t place = 0;
  for (const std::size_t member : joint) {
    const at::Tensor& tensor = parameters[member].tensor;
    if (!tensor.is_contiguous() || tensor.storage_offset() != place) {
      throw std::logic_error(parameters[member].name +
                             ": does not lie right behind the parameter before it in its storage");
    }
    place += tensor.numel();
  }
  if (place != storage_elements(parameters[joint.front()].tensor)) {
    throw std::logic_error(parameters[joint.back()].name +
                           ": its storage holds more than parameters that are trained");
  }
}

// The parameters by storage, those first that come first.
std::vector<Joint> joints_of(const std::vector<NamedTensor>& parameters) {
  std::vector<Joint> joints;
  std::map<const c10::StorageImpl*, std::size_t> numbers;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const auto* const storage = parameters[i].tensor.storage().unsafeGetStorageImpl();
    const auto [found, is_new] = numbers.try_emplace(storage, joints.size());
    if (is_new) {
      joints.emplace_back();
    }
    joints[found->second].push_back(i);
  }
  for (Joint& joint : joints) {
    std::ranges::stable_sort(
        joint, {}, [&](std::size_t member) { return parameters[member].tensor.storage_offset(); });
    require_filled(joint, parameters);
  }
  return joints;
}

std::size_t kind_of_joint(const Joint& joint, const std::vector<NamedTensor>& parameters,
                          const FlatParameters::KindOf& kind_of) {
  if (!kind_of) {
    return 0;
  }
  const std::size_t kind = kind_of(parameters[joint.front()]);
  for (const std::size_t member : joint) {
    if (kind_of(parameters[member]) != kind) {
      throw std::logic_error(parameters[member].name +
                             ": of another kind than what it shares its storage with");
    }
  }
  return kind;
}

// Copies a storage to its place in `flat`, lets it live there, and frees the memory it had. The
// flat memory stays as long as a storage is in it.
void move_storage(const at::Tensor& member, const at::Tensor& flat, std::int64_t offset) {
  const std::int64_t count = storage_elements(member);
  const at::Tensor target = flat.narrow(0, offset, count);
  target.copy_(member.detach().as_strided({count}, {1}, 0));
  auto keep_alive = std::make_unique<at::Storage>(flat.storage());
  const auto release = [](void* kept) { delete static_cast<at::Storage*>(kept); };
  c10::StorageImpl& storage = *member.storage().unsafeGetStorageImpl();
  storage.set_data_ptr_noswap(
      at::DataPtr(target.data_ptr(), keep_alive.release(), release, flat.device()));
  storage.set_resizable(false);
}

// Zeroes what lies between the ranges and behind the last.
void zero_gaps(const FlatBuffer& buffer) {
  std::int64_t end = 0;
  for (const FlatRange& range : buffer.ranges) {
    buffer.values.slice(0, end, range.offset).zero_();
    end = range.offset + range.count;
  }
  buffer.values.slice(0, end).zero_();
}

}  // namespace

at::Tensor FlatRange::view_of(const at::Tensor& flat) const {
  return flat.narrow(0, offset, count).view(sizes);
}

FlatParameters::FlatParameters(const std::vector<NamedTensor>& tensors, const KindOf& kind_of) {
  const at::NoGradGuard no_grad;
  std::ranges::copy_if(tensors, std::back_inserter(parameters_), &NamedTensor::trainable);
  places_.resize(parameters_.size());
  const std::vector<Joint> joints = joints_of(parameters_);
  std::vector<std::int64_t> elements;  // of each buffer
  for (const Joint& joint : joints) {
    place(joint, kind_of, elements);
  }
  // On a CPU both copies are there of one storage at a time, since memory takes no room before it
  // is written. On a GPU all values are there twice for a moment; gradients and what an optimizer
  // keeps are made when the old memory is free, and take more.
  for (std::size_t i = 0; i < buffers_.size(); ++i) {
    buffers_[i].values = at::empty({elements[i]}, buffers_[i].values.options());
    zero_gaps(buffers_[i]);
  }
  for (const Joint& joint : joints) {
    const auto [buffer, range] = places_[joint.front()];
    move_storage(parameters_[joint.front()].tensor, buffers_[buffer].values,
                 buffers_[buffer].ranges[range].offset);
  }
  release_freed_memory();  // what the tensors held by themselves
  make_gradients();
}

void FlatParameters::place(const std::vector<std::size_t>& joint, const KindOf& kind_of,
                           std::vector<std::int64_t>& elements) {
  const at::Tensor& front = parameters_[joint.front()].tensor;
  const std::size_t kind = kind_of_joint(joint, parameters_, kind_of);
  const auto found = std::ranges::find_if(buffers_, [&](const FlatBuffer& buffer) {
    return buffer.values.device() == front.device() &&
           buffer.values.scalar_type() == front.scalar_type() && buffer.kind == kind;
  });
  const auto number = static_cast<std::size_t>(found - buffers_.begin());
  if (found == buffers_.end()) {
    buffers_.push_back({.values = at::empty({0}, front.options()), .kind = kind});
    elements.push_back(0);
  }
  std::vector<FlatRange>& ranges = buffers_[number].ranges;
  std::int64_t& end = elements[number];
  for (const std::size_t member : joint) {
    const at::Tensor& tensor = parameters_[member].tensor;
    places_[member] = {number, ranges.size()};
    ranges.push_back({parameters_[member].name, end, tensor.numel(), tensor.sizes().vec()});
    end += tensor.numel();
  }
  const auto unit = kAlignment / static_cast<std::int64_t>(front.element_size());
  end = (end + unit - 1) / unit * unit;
}

void FlatParameters::make_gradients() {
  for (FlatBuffer& buffer : buffers_) {
    buffer.gradients = at::zeros_like(buffer.values);
  }
  const std::vector<at::Tensor> views = views_of(flat_gradients());
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    at::Tensor& gradient = parameters_[i].tensor.mutable_grad();
    if (gradient.defined()) {
      views[i].copy_(gradient);
    }
    gradient = views[i];
  }
}

std::vector<at::Tensor> FlatParameters::gradients() const {
  std::vector<at::Tensor> gradients;
  gradients.reserve(parameters_.size());
  for (const NamedTensor& parameter : parameters_) {
    gradients.push_back(parameter.tensor.grad());
  }
  return gradients;
}

std::vector<at::Tensor> FlatParameters::flat_gradients() const {
  std::vector<at::Tensor> gradients;
  for (const FlatBuffer& buffer : buffers_) {
    gradients.push_back(buffer.gradients);
  }
  return gradients;
}

std::vector<at::Tensor> FlatParameters::views_of(const std::vector<at::Tensor>& flat) const {
  std::vector<at::Tensor> views;
  views.reserve(places_.size());
  for (const auto& [buffer, range] : places_) {
    views.push_back(buffers_[buffer].ranges[range].view_of(flat[buffer]));
  }
  return views;
}

}  // namespace transnormer
