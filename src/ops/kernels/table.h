// One table of kernels for each instruction set they are compiled for.
#pragma once

#include "ops/kernels/kernels.h"

namespace transnormer::ops::kernels {
namespace baseline {
extern const Kernels table;
}
#if defined(__x86_64__)
namespace avx2 {
extern const Kernels table;
}
namespace avx512 {
extern const Kernels table;
}
#endif
}  // namespace transnormer::ops::kernels
