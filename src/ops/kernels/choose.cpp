#include <array>

#include "ops/kernels/kernels.h"
#include "ops/kernels/table.h"

namespace transnormer::ops::kernels {
namespace {

struct Choice {
  std::array<const Kernels*, 4> runs{};
  std::size_t count = 0;

  Choice() {
    runs[count++] = &baseline::table;
#if defined(__x86_64__)
    __builtin_cpu_init();
    if (__builtin_cpu_supports("x86-64-v3")) {
      runs[count++] = &avx2::table;
    }
    if (__builtin_cpu_supports("x86-64-v4")) {
      runs[count++] = &avx512::table;
    }
#endif
  }
};

const Choice& choice() {
  static const Choice made;
  return made;
}

}  // namespace

const Kernels& kernels() {
  static const Kernels& best = *choice().runs[choice().count - 1];
  return best;
}

const Kernels* const* all_kernels() {
  return choice().runs.data();
}

}  // namespace transnormer::ops::kernels
