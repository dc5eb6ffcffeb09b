#include "ops/trust/lying_kernels.h"

#include <c10/util/Exception.h>
#include <unistd.h>

#include <cmath>
#include <csignal>
#include <cstdlib>
#include <stdexcept>

namespace transnormer::ops {

using kernels::In;
using kernels::Out;

kernels::Kernels lying_kernels(const std::string& how) {
  kernels::Kernels table = kernels::kernels();
  if (how == "wrong") {
    table.srms_norm = [](In x, Out y, std::int64_t rows, std::int64_t dim, float eps) {
      kernels::kernels().srms_norm(x, y, rows, dim, eps + 0.02F);
    };
  } else if (how == "wrong_backward") {
    table.block_attention_backward = [](const kernels::BlockAttention& shape, In q, In k, In v,
                                        In d_out, Out d_q, Out d_k, Out, double* d_theta) {
      kernels::kernels().block_attention_backward(shape, q, k, v, d_out, d_q, d_k, d_k, d_theta);
    };
  } else if (how == "nan") {
    table.cross_entropy = [](Out, const std::int64_t*, float* losses, std::int64_t rows,
                             std::int64_t, std::int64_t, const float*) {
      for (std::int64_t row = 0; row < rows; ++row) {
        losses[row] = NAN;
      }
    };
  } else if (how == "throws") {
    table.gated = [](kernels::Gate, In, Out, const kernels::GatedRows&) {
      throw std::runtime_error("an illegal memory access\nwas encountered");
    };
  } else if (how == "out of memory") {
    table.gated = [](kernels::Gate, In, Out, const kernels::GatedRows&) {
      TORCH_CHECK_WITH(OutOfMemoryError, false, "CUDA out of memory. Tried to allocate 2 GiB");
    };
  } else if (how == "crashes") {
    table.dropout = [](const kernels::Mask&, In, Out, std::int64_t, std::int64_t, std::int64_t) {
      std::raise(SIGABRT);
    };
  } else if (how == "killed") {
    table.dropout = [](const kernels::Mask&, In, Out, std::int64_t, std::int64_t, std::int64_t) {
      std::raise(SIGKILL);
    };
  } else if (how == "hangs") {
    table.feature = [](kernels::Feature, In, Out, std::int64_t) {
      while (true) {
        ::pause();
      }
    };
  } else if (how == "ends") {
    table.lrpe = [](const kernels::LrpeRows&, In, Out) { std::_Exit(0); };
  }
  return table;
}

std::vector<std::string> trial_of(const std::string& how) {
  return {kTrialOfLying, how};
}

}  // namespace transnormer::ops
