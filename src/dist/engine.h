// LibTorch's collectives behind a group.
#pragma once

#include <torch/csrc/distributed/c10d/Backend.hpp>

namespace transnormer::dist {

struct Engine {
  c10::intrusive_ptr<c10d::Backend> backend;
};

}  // namespace transnormer::dist
