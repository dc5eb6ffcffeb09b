#include "checkpoint/snapshot.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cstddef>

namespace transnormer {
namespace {

bool is_alike(const NamedTensor& a, const NamedTensor& b) {
  return a.name == b.name && a.tensor.sizes() == b.tensor.sizes() &&
         a.tensor.scalar_type() == b.tensor.scalar_type();
}

}  // namespace

std::vector<NamedTensor> make_room(const std::vector<NamedTensor>& tensors) {
  std::vector<NamedTensor> room;
  room.reserve(tensors.size());
  for (const NamedTensor& named : tensors) {
    room.push_back({named.name, room_for(named.tensor), named.trainable});
  }
  return room;
}

void copy_tensors(const std::vector<NamedTensor>& tensors, std::vector<NamedTensor>& copies) {
  const at::NoGradGuard no_grad;
  if (!std::ranges::equal(tensors, copies, is_alike)) {
    copies.clear();
    copies = make_room(tensors);
  }
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    copies[i].tensor.copy_(tensors[i].tensor);
  }
}

}  // namespace transnormer
