// The bodies of the GPU's kernels, run on the host (tests/ops/emulation.h), against the CPU's
// kernels, which other tests compare with plain loops. What only a GPU can tell is in
// cuda_test.cpp.
#include "ops/emulated.h"

namespace transnormer::ops {
namespace {

// LRPE's tables of some rows, and the vector of its reflection.
struct Rotations {
  Rotations(std::int64_t dim, std::int64_t rows)
      : rotation(wide(made(dim, rows))),
        position(wide(at::arange(rows, at::kDouble) + 5)),
        unit(wide(at::full({dim}, 1 / std::sqrt(static_cast<double>(dim)), at::kFloat))) {}

  // Time t is rotated by row (2 + t) % rows.
  [[nodiscard]] kernels::Lrpe view() const {
    return {rotation.x.const_data_ptr<float>(), position.x.const_data_ptr<double>(),
            unit.x.const_data_ptr<float>(), 2, position.x.size(0)};
  }

  static at::Tensor made(std::int64_t dim, std::int64_t rows) {
    const at::Tensor angle = normal({rows, dim / 2}, 7);
    return at::stack({angle.cos(), angle.sin()}, -1).flatten(1);
  }

  Given rotation;
  Given position;
  Given unit;
};

TEST(CudaEmulation, Lrpe) {
  constexpr std::int64_t kTime = 21, kHeads = 3;
  for (const std::int64_t dim : {2, 24, 70}) {
    for (const std::int64_t period : {8, 40}) {
      const Rotations table(dim, period);
      const Given x{normal({2, kTime, kHeads, dim}, 1)}, g{normal({2, kTime, kHeads, dim}, 2)};
      const kernels::LrpeRows rows{0, 2 * kTime, kTime, kHeads, dim, table.view()};
      expect_like_cpu(
          "lrpe of " + std::to_string(dim), {x, g},
          {blank(x.x.sizes()), blank(x.x.sizes()), wide(at::ones({dim / 2}, at::kDouble))},
          [&](const Kernels& k, const Tensors& t, const Tensors& y) {
            k.lrpe(rows, in(t[0]), out(y[0]));
            k.lrpe_backward(rows, in(t[0]), in(t[1]), out(y[1]), y[2].mutable_data_ptr<double>());
          });
    }
  }
}

constexpr std::int64_t kBatch = 2, kHeads = 2;

// Queries, keys and values side by side in rows, [batch, time, width]; the gradients as well.
struct Joint {
  Joint(std::int64_t times, std::int64_t key_dim, std::int64_t value_dim)
      : time(times),
        k(kHeads * key_dim),
        v(2 * kHeads * key_dim),
        width(kHeads * (2 * key_dim + value_dim)) {}

  [[nodiscard]] Given given(std::uint64_t seed) const {
    return {normal({kBatch, time, width}, seed)};
  }
  [[nodiscard]] Given blank_like() const { return blank({kBatch, time, width}); }
  [[nodiscard]] kernels::RowStrides strides() const { return {width, width, width}; }

  std::int64_t time;
  std::int64_t k;  // where the keys begin
  std::int64_t v;
  std::int64_t width;
};

struct FeatureAndLrpe {
  kernels::Feature feature;
  kernels::Lrpe lrpe;
};

// With and without each part of an encoding.
std::vector<FeatureAndLrpe> encodings(const Rotations& table, std::int64_t dim) {
  std::vector<FeatureAndLrpe> all{{kernels::Feature::none, {}}, {kernels::Feature::elu1, {}}};
  if (dim % 2 == 0) {
    all.push_back({kernels::Feature::elu, table.view()});
    all.push_back({kernels::Feature::silu, table.view()});
    all.push_back({kernels::Feature::none, table.view()});
  }
  return all;
}

TEST(CudaEmulation, LinearAttentionAtAnyLengthAndWidth) {
  for (const auto& [time, key_dim, value_dim] :
       {std::tuple{1, 24, 17}, std::tuple{63, 24, 17}, std::tuple{64, 64, 64},
        std::tuple{65, 13, 70}, std::tuple{130, 70, 13}, std::tuple{40, 66, 65}}) {
    const Rotations table(key_dim - key_dim % 2, 50);
    const Scratch scratch(kernels::linear_attention_scratch(kHeads, key_dim, value_dim));
    for (const auto& [feature, lrpe] : encodings(table, key_dim)) {
      const Joint joint(time, key_dim, value_dim);
      const std::vector<std::int64_t> out_sizes{kBatch, time, kHeads, value_dim};
      const Given d_out{normal(out_sizes, 2)};
      const Given state = wide(normal({kBatch * kHeads, key_dim, value_dim}, 3));
      const Given d_theta = wide(at::ones({kBatch * kHeads, key_dim / 2}, at::kDouble));
      const Given behind = wide(normal({kBatch * kHeads, key_dim, value_dim}, 4));
      const kernels::OuterSums outer{state.x.const_data_ptr<float>(),
                                     behind.x.const_data_ptr<float>()};
      const kernels::LinearAttention shape{.first = 0,
                                           .last = kBatch * kHeads,
                                           .time = time,
                                           .heads = kHeads,
                                           .key_dim = key_dim,
                                           .value_dim = value_dim,
                                           .scratch = scratch.data(),
                                           .strides = joint.strides(),
                                           .gradient_strides = joint.strides(),
                                           .feature = feature,
                                           .lrpe = lrpe};
      expect_like_cpu(
          "linear attention over " + std::to_string(time), {joint.given(1), d_out},
          {blank(out_sizes), blank(out_sizes), joint.blank_like(), state, d_theta, state,
           joint.blank_like(), d_theta},
          [&](const Kernels& set, const Tensors& t, const Tensors& y) {
            const kernels::In q = in(t[0]), k = in(t[0], joint.k), v = in(t[0], joint.v);
            set.linear_attention(shape, q, k, v, out(y[0]), nullptr);
            set.linear_attention(shape, q, k, v, out(y[1]), y[3].mutable_data_ptr<float>());
            set.linear_attention_backward(shape, q, k, v, in(t[1]), out(y[2]), out(y[2], joint.k),
                                          out(y[2], joint.v), y[4].mutable_data_ptr<double>(), {});
            const kernels::Out unwanted{nullptr, element_type(t[0])};
            set.linear_attention(shape, {}, k, v, unwanted, y[5].mutable_data_ptr<float>());
            set.linear_attention_backward(shape, q, k, v, in(t[1]), out(y[6]), out(y[6], joint.k),
                                          out(y[6], joint.v), y[7].mutable_data_ptr<double>(),
                                          outer);
          });
    }
  }
}

struct OddSizes {
  std::int64_t time;
  std::int64_t key_dim;
  std::int64_t value_dim;
};
constexpr OddSizes kOddSizes[] = {{1, 24, 17}, {37, 13, 70}, {130, 70, 13}, {200, 24, 17}};

// Of three heads, dense.
struct OddHeads {
  explicit OddHeads(const OddSizes& sizes)
      : s(sizes),
        scratch(kernels::linear_attention_scratch(kNumber, s.key_dim, s.value_dim)),
        keys({kBatch, s.time, kNumber, s.key_dim}),
        values({kBatch, s.time, kNumber, s.value_dim}),
        states({kBatch * kNumber, s.key_dim, s.value_dim}) {}

  [[nodiscard]] kernels::LinearAttention shape(const FeatureAndLrpe& encoding) const {
    return {.first = 0,
            .last = kBatch * kNumber,
            .time = s.time,
            .heads = kNumber,
            .key_dim = s.key_dim,
            .value_dim = s.value_dim,
            .scratch = scratch.data(),
            .feature = encoding.feature,
            .lrpe = encoding.lrpe};
  }
  [[nodiscard]] Given d_theta() const {
    return wide(at::ones({kBatch * kNumber, s.key_dim / 2}, at::kDouble));
  }

  static constexpr std::int64_t kNumber = 3;
  OddSizes s;
  Scratch scratch;
  std::vector<std::int64_t> keys, values, states;  // sizes
};

TEST(CudaEmulation, LinearAttentionThatFadesAtAnyLength) {
  const at::Tensor usual = at::tensor({0.5F, 0.9F, 0.999F}), ends = at::tensor({0.F, 1.F, 0.97F});
  for (const OddSizes& sizes : kOddSizes) {
    const OddHeads heads(sizes);
    const Rotations table(sizes.key_dim - sizes.key_dim % 2, 50);
    const bool rotates = sizes.key_dim % 2 == 0;
    for (const at::Tensor& decay : {usual, ends}) {
      kernels::LinearAttention shape =
          heads.shape({kernels::Feature::elu1, rotates ? table.view() : kernels::Lrpe{}});
      shape.decay = decay.const_data_ptr<float>();
      const Given state = wide(normal(heads.states, 5)), behind = wide(normal(heads.states, 6));
      const kernels::OuterSums outer{state.x.const_data_ptr<float>(),
                                     behind.x.const_data_ptr<float>()};
      expect_like_cpu(
          "fading linear attention over " + std::to_string(sizes.time),
          {{normal(heads.keys, 1)},
           {normal(heads.keys, 2)},
           {normal(heads.values, 3)},
           {normal(heads.values, 4)}},
          {blank(heads.values), state, state, blank(heads.keys), blank(heads.keys),
           blank(heads.values), heads.d_theta(), blank(heads.keys), blank(heads.keys),
           blank(heads.values), heads.d_theta()},
          [&](const Kernels& set, const Tensors& t, const Tensors& y) {
            const kernels::In q = in(t[0]), k = in(t[1]), v = in(t[2]), gradient = in(t[3]);
            set.linear_attention(shape, q, k, v, out(y[0]), y[1].mutable_data_ptr<float>());
            const kernels::Out unwanted{nullptr, element_type(t[0])};
            set.linear_attention(shape, {}, k, v, unwanted, y[2].mutable_data_ptr<float>());
            set.linear_attention_backward(shape, q, k, v, gradient, out(y[3]), out(y[4]), out(y[5]),
                                          y[6].mutable_data_ptr<double>(), {});
            set.linear_attention_backward(shape, q, k, v, gradient, out(y[7]), out(y[8]), out(y[9]),
                                          y[10].mutable_data_ptr<double>(), outer);
          });
    }
  }
}

TEST(CudaEmulation, DividedLinearAttentionAtAnyLength) {
  for (const OddSizes& sizes : kOddSizes) {
    const OddHeads heads(sizes);
    const Rotations table(sizes.key_dim - sizes.key_dim % 2, 50);
    std::vector<FeatureAndLrpe> encodings{{kernels::Feature::elu1, {}},
                                          {kernels::Feature::relu, {}}};
    if (sizes.key_dim % 2 == 0) {
      encodings.push_back({kernels::Feature::elu1, table.view()});
    }
    for (const FeatureAndLrpe& encoding : encodings) {
      kernels::LinearAttention shape = heads.shape(encoding);
      shape.divides = true;
      shape.floor = encoding.feature == kernels::Feature::relu ? 20.F : 0.5F;
      const std::vector<std::int64_t> times{kBatch, sizes.time, OddHeads::kNumber};
      const Given state = wide(normal(heads.states, 5));
      const Given keys = wide(normal({kBatch * OddHeads::kNumber, sizes.key_dim}, 6).abs());
      const Given unfilled = wide(at::full(times, NAN));
      // The backward pass is asked about outputs and divisors of their own; the floor holds for
      // half of them.
      const Given divisors = wide(normal(times, 7).clamp_min(0) + shape.floor);
      expect_like_cpu(
          "divided linear attention over " + std::to_string(sizes.time),
          {{normal(heads.keys, 1)},
           {normal(heads.keys, 2)},
           {normal(heads.values, 3)},
           {normal(heads.values, 4)},
           {normal(heads.values, 8)},
           divisors},
          {blank(heads.values), unfilled, blank(heads.values), state, keys, state, keys,
           blank(heads.keys), blank(heads.keys), blank(heads.values), heads.d_theta()},
          [&](const Kernels& set, const Tensors& t, const Tensors& y) {
            const kernels::In q = in(t[0]), k = in(t[1]), v = in(t[2]);
            kernels::LinearAttention own = shape;
            own.divisors = y[1].mutable_data_ptr<float>();
            set.linear_attention(own, q, k, v, out(y[0]), nullptr);
            own.divisors = nullptr;
            own.key_sums = y[4].mutable_data_ptr<float>();
            set.linear_attention(own, q, k, v, out(y[2]), y[3].mutable_data_ptr<float>());
            own.key_sums = y[6].mutable_data_ptr<float>();
            const kernels::Out unwanted{nullptr, element_type(t[0])};
            set.linear_attention(own, {}, k, v, unwanted, y[5].mutable_data_ptr<float>());
            own = shape;
            own.output = in(t[4]);
            own.divisors = t[5].mutable_data_ptr<float>();
            set.linear_attention_backward(own, q, k, v, in(t[3]), out(y[7]), out(y[8]), out(y[9]),
                                          y[10].mutable_data_ptr<double>(), {});
          });
    }
  }
}

// Of logarithms, by the definition in double: output, and gradients of q, k, v.
Tensors plain_exponentials(const Tensors& given, bool divides) {
  Tensors x;
  for (std::size_t i = 0; i < 3; ++i) {
    x.push_back(leaf(given[i].to(at::kDouble)));
  }
  const auto heads = [](const at::Tensor& y) { return y.transpose(1, 2); };
  const at::Tensor weights = at::matmul(heads(x[0].exp()), heads(x[1].exp()).mT()).tril();
  at::Tensor y = at::matmul(weights, heads(x[2]));
  if (divides) {
    y = y / weights.sum(-1, true);
  }
  y = heads(y);
  y.backward(given[3].to(at::kDouble));
  return {y.detach(), x[0].grad(), x[1].grad(), x[2].grad()};
}

Tensors emulated_exponentials(kernels::LinearAttention shape, const Tensors& t, bool backwards) {
  Tensors y;
  for (const std::size_t like : {2, 0, 1, 2}) {
    y.push_back(at::full_like(t[like], NAN));
  }
  const at::Tensor divisors = at::full({t[0].size(0), t[0].size(1), t[0].size(2)}, NAN);
  shape.divisors = shape.divides ? divisors.mutable_data_ptr<float>() : nullptr;
  shape.output = in(y[0]);
  emulation_runs_backwards = backwards;
  const Kernels& set = emulated_kernels();
  set.linear_attention(shape, in(t[0]), in(t[1]), in(t[2]), out(y[0]), nullptr);
  set.linear_attention_backward(shape, in(t[0]), in(t[1]), in(t[2]), in(t[3]), out(y[1]), out(y[2]),
                                out(y[3]), nullptr, {});
  emulation_runs_backwards = false;
  return y;
}

TEST(CudaEmulation, LinearAttentionOfLogarithmsAtAnyLengthAndSize) {
  for (const OddSizes& sizes : kOddSizes) {
    const OddHeads heads(sizes);
    for (const auto& [divides, size] :
         {std::pair{true, 1.0}, std::pair{true, 25.0}, std::pair{false, 1.0}}) {
      const std::string what = "logarithms over " + std::to_string(sizes.time) + " of size " +
                               std::to_string(size) + (divides ? ", divided" : "");
      const Tensors given{normal(heads.keys, 1) * size, normal(heads.keys, 2) * size,
                          normal(heads.values, 3), normal(heads.values, 4)};
      kernels::LinearAttention shape = heads.shape({kernels::Feature::none, {}});
      shape.exponential = true;
      shape.divides = divides;
      const Tensors expected = plain_exponentials(given, divides);
      const Tensors found = emulated_exponentials(shape, given, false);
      const Tensors again = emulated_exponentials(shape, given, true);
      for (std::size_t i = 0; i < expected.size(); ++i) {
        // Gradients of a token alone are zero.
        const double scale = std::max(expected[i].abs().max().item<double>(), 1.0);
        EXPECT_LT((found[i] - expected[i]).abs().max().item<double>() / scale, 3e-6 * size)
            << what << ", result " << i;
        EXPECT_TRUE(at::equal(found[i], again[i])) << what << ": the order of threads matters";
      }
    }
  }
}

TEST(CudaEmulation, BitsOfLogarithmsDoNotDependOnWhatComesLater) {
  const OddHeads heads({130, 24, 17});
  for (const bool divides : {true, false}) {
    kernels::LinearAttention shape = heads.shape({kernels::Feature::none, {}});
    shape.exponential = true;
    shape.divides = divides;
    const auto output = [&](std::int64_t changed_from) {
      Tensors x{normal(heads.keys, 1), normal(heads.keys, 2), normal(heads.values, 3)};
      for (const at::Tensor& changed : x) {
        changed.slice(1, changed_from).mul_(-1.7).add_(30);
      }
      const at::Tensor y = at::full(heads.values, NAN);
      emulated_kernels().linear_attention(shape, in(x[0]), in(x[1]), in(x[2]), out(y), nullptr);
      return y;
    };
    const at::Tensor whole = output(130);
    for (const std::int64_t t : {1, 30, 64, 100}) {
      EXPECT_TRUE(at::equal(output(t).slice(1, 0, t), whole.slice(1, 0, t))) << "before " << t;
    }
  }
}

TEST(CudaEmulation, BlockAttentionWithAndWithoutDropout) {
  for (const auto& [time, dim, block] : {std::tuple{1, 24, 8}, std::tuple{37, 24, 8},
                                         std::tuple{70, 66, 64}, std::tuple{75, 13, 70}}) {
    const Rotations table(dim - dim % 2, block);
    const Scratch scratch(kernels::block_attention_scratch(block, dim));
    int number = 0;
    for (const auto& [feature, lrpe] : encodings(table, dim)) {
      for (const bool softmax : {true, false}) {
        const Joint joint(time, dim, dim);
        const std::vector<std::int64_t> out_sizes{kBatch, time, kHeads, dim};
        const Given d_out{normal(out_sizes, 2)};
        const Given d_theta = wide(at::ones({kBatch * kHeads, dim / 2}, at::kDouble));
        const kernels::BlockAttention shape{.first = 0,
                                            .last = kBatch * kHeads,
                                            .time = time,
                                            .heads = kHeads,
                                            .dim = dim,
                                            .block = block,
                                            .scale = 0.2F,
                                            .softmax = softmax,
                                            .drops = ++number % 3 != 0,
                                            .mask = some_mask(0.3),
                                            .scratch = scratch.data(),
                                            .strides = joint.strides(),
                                            .gradient_strides = joint.strides(),
                                            .feature = feature,
                                            .lrpe = lrpe};
        expect_like_cpu(
            "blocks of " + std::to_string(block) + ", variant " + std::to_string(number),
            {joint.given(1), d_out}, {blank(out_sizes), joint.blank_like(), d_theta},
            [&](const Kernels& set, const Tensors& t, const Tensors& y) {
              const kernels::In q = in(t[0]), k = in(t[0], joint.k), v = in(t[0], joint.v);
              set.block_attention(shape, q, k, v, out(y[0]));
              set.block_attention_backward(shape, q, k, v, in(t[1]), out(y[1]), out(y[1], joint.k),
                                           out(y[1], joint.v), y[2].mutable_data_ptr<double>());
            });
      }
    }
  }
}

// The shared memory of a block on GPUs of compute capability 8.0 and 9.0; the registers and what is
// static are read from the build by cuda_kernels_test.py.
TEST(CudaAttentions, OfUsualHeadsFindRoomOnEachGpu) {
  for (const std::int64_t most : {163 << 10, 227 << 10}) {
    for (const std::int64_t dim : {32, 64, 128}) {
      kernels::BlockAttention blocks{};
      blocks.dim = dim;
      blocks.block = 64;
      EXPECT_LE(cuda::BlockGradients::shared_floats(blocks) * 4, most) << dim;
      EXPECT_LE(cuda::BlockOutput::shared_floats(blocks) * 4, most) << dim;
    }
    kernels::LinearAttention linear{};
    linear.key_dim = 64;
    linear.value_dim = 64;
    EXPECT_LE(cuda::LinearAttentions<EmulatedLauncher>::most_shared_floats(linear) * 4, most);
    linear.divides = true;
    EXPECT_LE(cuda::LinearAttentions<EmulatedLauncher>::most_shared_floats(linear) * 4, most);
    const float decay = 1;
    linear.divides = false;
    linear.decay = &decay;
    EXPECT_LE(cuda::LinearAttentions<EmulatedLauncher>::most_shared_floats(linear) * 4, most);
    linear.divides = true;
    linear.decay = nullptr;
    linear.exponential = true;
    EXPECT_LE(cuda::LinearAttentions<EmulatedLauncher>::most_shared_floats(linear) * 4, most);
  }
}

TEST(CudaEmulation, CrossEntropyInPlace) {
  for (const auto& [words, stride] :
       {std::pair{5, 5}, std::pair{8, 8}, std::pair{1032, 1032}, std::pair{1037, 1037},
        std::pair{1037, 1040}, std::pair{5, 8}, std::pair{8192, 8192}}) {
    const at::Tensor targets = at::arange(9, at::kLong) * 31 % words;
    targets[3].fill_(-1);
    static constexpr float kScale = 0.37F;
    for (const bool gradient : {true, false}) {
      expect_like_cpu("cross entropy of " + std::to_string(words), {wide(targets)},
                      {{3 * normal({9, stride}, 1)}, wide(at::full({9}, NAN))},
                      [&, words = words, stride = stride](const Kernels& k, const Tensors& t,
                                                          const Tensors& y) {
                        k.cross_entropy(out(y[0]), t[0].const_data_ptr<std::int64_t>(),
                                        y[1].mutable_data_ptr<float>(), 9, words, stride,
                                        gradient ? &kScale : nullptr);
                      });
    }
  }
}

}  // namespace
}  // namespace transnormer::ops
