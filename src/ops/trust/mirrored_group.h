// A group for trials in one process.
#pragma once

#include "dist/group.h"

namespace transnormer::ops {

// The middle one of three ranks, the others of which have what this one has: gather() gives it
// three times. Nothing else works.
[[nodiscard]] dist::Group mirrored_group();

}  // namespace transnormer::ops
