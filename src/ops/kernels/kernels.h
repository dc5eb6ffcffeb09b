// What kernels there are, and the CPU's tables of them; the GPU's is in ops/cuda/. The CPU's are
// compiled once for every instruction set (see ops/CMakeLists.txt) and chosen at run time, so that
// one binary serves every x86-64 processor; they are single-threaded, callers share the work out. A
// GPU's kernel is given all of it in one call. No LibTorch here, and nothing inline from the
// standard library, which could otherwise leak instructions of one set into code that all
// processors run.
#pragma once

#include <cstdint>

namespace transnormer::ops::kernels {

// What a tensor's elements are. Half precision is for a GPU's kernels only.
enum class Element : std::uint8_t { f32, bf16, f16 };

// All tensors are row-major, and dense unless their rows' strides are named beside them.
struct In {
  const void* data;
  Element type;
};
struct Out {
  void* data;
  Element type;
};

enum class Gate { silu, relu, none };

// The rows of a GLU: gate and up lie side by side, [rows, 2 * width], the output is [rows, width].
// The strides are the elements from one row to the next, 0 where the tensor is dense; gradients
// have those of what they are of.
struct GatedRows {
  std::int64_t rows;
  std::int64_t width;
  std::int64_t gate_up_stride = 0;
  std::int64_t out_stride = 0;

  [[nodiscard]] constexpr std::int64_t gate_up_step() const {
    return gate_up_stride > 0 ? gate_up_stride : 2 * width;
  }
  [[nodiscard]] constexpr std::int64_t out_step() const {
    return out_stride > 0 ? out_stride : width;
  }
};

// What a captured pass reads anew whenever it is replayed; in the GPU's memory.
struct LiveCounters {
  std::uint64_t update;
  std::uint64_t first_sample;
};

// A dropout mask: of a sample, from its element number `first` on.
struct Mask {
  std::uint32_t key_low;
  std::uint32_t key_high;
  std::uint64_t sample;
  std::uint64_t first;
  std::uint32_t threshold;  // kept if the upper 24 bits of the element's word reach it
  float scale;              // of what is kept
  // Where there is one (for a GPU's kernels only): the key is that of (seed, live->update, layer,
  // site), and `sample` counts from live->first_sample.
  const LiveCounters* live = nullptr;
  std::uint64_t seed = 0;
  std::int64_t layer = 0;
  std::int64_t site = 0;
};

// Rows [first, last) of a tensor [samples, rows_per_sample, dim].
struct Residual {
  std::int64_t first;
  std::int64_t last;
  std::int64_t rows_per_sample;
  std::int64_t dim;
  float eps;  // of the norm
  bool drops;
  Mask mask;  // of sample 0 of the tensor
};

inline constexpr std::int64_t kWidestLrpe = 1024;  // dim

enum class Feature { none, elu1, elu, relu, silu, exp };

// LRPE's reflection and rotations. The row of time t is rotated by row (first + t) % rows of the
// tables. Without a rotation there is no LRPE.
struct Lrpe {
  const float* rotation = nullptr;   // [rows, dim]: of each angle its cosine, then its sine
  const double* position = nullptr;  // [rows]
  const float* unit = nullptr;       // [dim]
  std::int64_t first = 0;
  std::int64_t rows = 0;
};

struct LrpeRows {
  std::int64_t first;  // rows are (batch, time) pairs, of heads * dim elements each
  std::int64_t last;
  std::int64_t time;
  std::int64_t heads;
  std::int64_t dim;
  Lrpe lrpe;
};

// Elements from the row of one time to that of the next, 0 where the tensor is dense. A row's heads
// lie side by side; the rows of one batch row follow those of the one before.
struct RowStrides {
  std::int64_t q = 0;
  std::int64_t k = 0;
  std::int64_t v = 0;
};

// Where queries and keys are logarithms of their features, for CPU kernels: the chunks of each
// head, and in whose units the features of a chunk are taken, so that no exponential is beyond
// single precision. Everything stands for (head, chunk) at place first[head] + chunk, one place
// behind the last chunk included; the head counts over the batch. See ops/attention/logarithms.h.
struct Logarithms {
  const std::int64_t* first = nullptr;   // [batch * heads]
  const std::int64_t* starts = nullptr;  // the first time of a chunk; behind the last: all times
  // [.., key_dim]: that of a chunk; behind the last: the maxima of all keys.
  const float* references = nullptr;
};

// Heads [first, last) of batch * heads, of tensors [batch, time, heads, dim]. Output and its
// gradient are dense.
struct LinearAttention {
  std::int64_t first;
  std::int64_t last;
  std::int64_t time;
  std::int64_t heads;
  std::int64_t key_dim;
  std::int64_t value_dim;
  float* scratch;  // linear_attention_scratch floats, aligned to 64 bytes, of any values
  RowStrides strides{};
  RowStrides gradient_strides{};
  Feature feature = Feature::none;  // what queries and keys go through first
  Lrpe lrpe{};                      // .. and then
  // What a sum is multiplied with from one time to the next, [heads]; null: it is kept.
  const float* decay = nullptr;
  // The output is divided by max(q . sum of k, floor), of features without LRPE; without decay.
  bool divides = false;
  float floor = 0;
  float* divisors = nullptr;  // [batch, time, heads]: those divisors. Backward reads them, forward
                              // writes them unless null
  float* key_sums = nullptr;  // [batch * heads, key_dim]: of k, as `state` is of k v^T, beside it
  In output{};                // of the forward pass, for the backward pass; where it divides
  // Queries and keys are logarithms of their features; without LRPE, decay and floor. A CPU's
  // kernels are given `logarithms` beside it; a GPU's have no states then, and divisors are in
  // units of their own.
  bool exponential = false;
  Logarithms logarithms{};
};

// Of the tokens before and behind those of the tensors, [batch * heads, key_dim, value_dim] each;
// null: there are none.
struct OuterSums {
  const float* before = nullptr;  // of k v^T
  const float* behind = nullptr;  // of q d_out^T
};

struct BlockAttention {
  std::int64_t first;
  std::int64_t last;
  std::int64_t time;
  std::int64_t heads;
  std::int64_t dim;
  std::int64_t block;
  float scale;
  bool softmax;  // else ReLU
  bool drops;
  Mask mask;       // sample: of batch row 0; first: of time 0
  float* scratch;  // block_attention_scratch floats, aligned to 64 bytes, of any values
  RowStrides strides{};
  RowStrides gradient_strides{};
  Feature feature = Feature::none;  // what queries and keys go through first
  Lrpe lrpe{};                      // .. and then
};

inline constexpr std::int64_t kChunk = 64;

[[nodiscard]] constexpr std::int64_t padded(std::int64_t count) {
  return (count + 15) / 16 * 16;
}

// `heads`: of one batch row, that a call works on at most.
[[nodiscard]] constexpr std::int64_t linear_attention_scratch(std::int64_t heads,
                                                              std::int64_t key_dim,
                                                              std::int64_t value_dim) {
  const std::int64_t k = padded(key_dim);
  const std::int64_t v = padded(value_dim);
  return (6 * kChunk + heads + 1) * k + 4 * kChunk * v + (2 * kChunk + 5) * kChunk +
         (heads + 1) * k * v;
}

[[nodiscard]] constexpr std::int64_t block_attention_scratch(std::int64_t block, std::int64_t dim) {
  return padded(block) * (7 * padded(dim) + 3 * padded(block) + 1);
}

struct StepKernels;  // ops/kernels/step.h

struct Kernels {
  const char* name;

  void (*gated)(Gate, In gate_up, Out out, const GatedRows&);
  void (*gated_backward)(Gate, In gate_up, In d_out, Out d_gate_up, const GatedRows&);
  void (*feature)(Feature, In x, Out y, std::int64_t count);
  void (*feature_backward)(Feature, In x, In d_y, Out d_x, std::int64_t count);

  void (*srms_norm)(In x, Out y, std::int64_t rows, std::int64_t dim, float eps);
  void (*srms_norm_backward)(In x, In d_y, Out d_x, std::int64_t rows, std::int64_t dim, float eps);

  // sum = x + drop(y) and, where `normed` has data, its norm. x and sum are fp32, normed is of y's
  // type.
  void (*residual)(const Residual&, In x, In y, Out sum, Out normed);
  // d_x = d_sum + d(norm)/d(sum) d_normed; d_y = drop(d_x). A gradient without data counts as zero,
  // a result without data is not wanted; d_normed and d_y are of one type.
  void (*residual_backward)(const Residual&, In sum, In d_sum, In d_normed, Out d_x, Out d_y);

  // sums[column] += the sum of the column over all rows, in columns [first, last).
  void (*add_column_sums)(In x, float* sums, std::int64_t rows, std::int64_t columns,
                          std::int64_t first, std::int64_t last);
  // sum += x
  void (*accumulate)(In x, float* sum, std::int64_t count);

  // Elements [first, last) of a tensor [samples, elements]; the mask is that of its sample 0.
  void (*dropout)(const Mask&, In x, Out y, std::int64_t elements, std::int64_t first,
                  std::int64_t last);
  void (*dropout_mask)(const Mask&, float* mask, std::int64_t count);

  void (*lrpe)(const LrpeRows&, In x, Out y);
  // Adds the gradient of the angles' factors to d_theta [dim / 2].
  void (*lrpe_backward)(const LrpeRows&, In x, In d_y, Out d_x, double* d_theta);

  // `state` [batch * heads, key_dim, value_dim] may be null; else read first and updated. An output
  // without data is not wanted, and q not read.
  void (*linear_attention)(const LinearAttention&, In q, In k, In v, Out out, float* state);
  // Adds to d_theta [batch * heads, key_dim / 2], which may be null where there is no LRPE.
  void (*linear_attention_backward)(const LinearAttention&, In q, In k, In v, In d_out, Out d_q,
                                    Out d_k, Out d_v, double* d_theta, const OuterSums&);
  void (*block_attention)(const BlockAttention&, In q, In k, In v, Out out);
  void (*block_attention_backward)(const BlockAttention&, In q, In k, In v, In d_out, Out d_q,
                                   Out d_k, Out d_v, double* d_theta);

  // Rows of logits, `stride` elements apart, become *scale * d(loss)/d(logits), unless `scale` is
  // null; it lies where the logits do. Targets below 0 are ignored.
  void (*cross_entropy)(Out logits, const std::int64_t* targets, float* losses, std::int64_t rows,
                        std::int64_t vocab_size, std::int64_t stride, const float* scale);

  const StepKernels* step = nullptr;  // those of decoding; a GPU has none
};

// The best of those that this processor runs.
[[nodiscard]] const Kernels& kernels();

// All that it runs, plainest first; null behind the last. For tests.
[[nodiscard]] const Kernels* const* all_kernels();

}  // namespace transnormer::ops::kernels
