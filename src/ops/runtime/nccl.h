// NCCL, by which processes talk that each use a GPU.
#pragma once

#include <c10/core/Device.h>

#include "dist/world.h"

namespace transnormer::ops {

// For dist::World::form_groups: empty where the device is a CPU. What is made is for the current
// device, that of select_device(), which must have been called. Making throws UserError that says
// what to install where the program was built without NCCL.
[[nodiscard]] dist::EngineMaker nccl_engines(at::Device device);

}  // namespace transnormer::ops
