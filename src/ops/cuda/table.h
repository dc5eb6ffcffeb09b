// The table of a GPU's kernels, made for a launcher: the one that starts them on the GPU
// (ops/cuda/launcher.cuh), or the one that emulates it for tests. A launcher has
//   elements(count, body)                       body(i), a thread each
//   elementwise(count, body)                    body.put(i, body.make(i)), a thread several
//   rows(count, body)                           body(group, i), a warp each
//   blocks(count, threads, body)                body(group, i), a block of threads each
//   blocks(count, threads, floats, body)        body(group, i, shared memory)
//   Workspace<T>(count)                         .data(), the device's memory until the kernels that
//                                               were launched before its end are done
// and its groups have
//   size, each(f), reduce(f, combine)           see ops/cuda/rows.h
//   rows(count, f)                              of a block: f(warp, i), the warps taking turns
// After each, reduce and rows, all threads of the group see what any has written before.
#pragma once

#include "ops/cuda/block_attention.h"
#include "ops/cuda/cross_entropy.h"
#include "ops/cuda/elementwise.h"
#include "ops/cuda/linear_attention.h"
#include "ops/cuda/lrpe.h"
#include "ops/cuda/rows.h"
#include "ops/cuda/sums.h"

namespace transnormer::ops::cuda {

template <typename Launcher>
[[nodiscard]] kernels::Kernels table_of(const char* name) {
  return {.name = name,
          .gated = Elementwise<Launcher>::gated,
          .gated_backward = Elementwise<Launcher>::gated_backward,
          .feature = Elementwise<Launcher>::feature,
          .feature_backward = Elementwise<Launcher>::feature_backward,
          .srms_norm = Rows<Launcher>::srms_norm,
          .srms_norm_backward = Rows<Launcher>::srms_norm_backward,
          .residual = Rows<Launcher>::residual,
          .residual_backward = Rows<Launcher>::residual_backward,
          .add_column_sums = add_column_sums<Launcher>,
          .accumulate = Elementwise<Launcher>::accumulate,
          .dropout = Elementwise<Launcher>::dropout,
          .dropout_mask = Elementwise<Launcher>::dropout_mask,
          .lrpe = LrpeAlone<Launcher>::forward,
          .lrpe_backward = LrpeAlone<Launcher>::backward,
          .linear_attention = LinearAttentions<Launcher>::forward,
          .linear_attention_backward = LinearAttentions<Launcher>::backward,
          .block_attention = BlockAttentions<Launcher>::forward,
          .block_attention_backward = BlockAttentions<Launcher>::backward,
          .cross_entropy = cross_entropy<Launcher>};
}

}  // namespace transnormer::ops::cuda
