// The GPU's kernels of rows and single elements, compiled for the host and run by emulation,
// against those of the CPU.
#include "ops/emulated.h"

namespace transnormer::ops {
namespace {

TEST(CudaEmulation, HalvesAreRoundedAsTheLibraryRounds) {
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    const c10::Half half(static_cast<std::uint16_t>(bits), c10::Half::from_bits());
    const float wide = half;
    const float read = cuda::value(cuda::Half{static_cast<std::uint16_t>(bits)});
    EXPECT_TRUE(read == wide || (std::isnan(read) && std::isnan(wide))) << bits;
    for (const float x : {wide, std::nextafter(wide, INFINITY), wide * 1.00048828125F,
                          wide + 0x1.0p-25F, wide * 1.0007F}) {
      const std::uint16_t expected = c10::Half(x).x;
      if (!std::isnan(x)) {
        ASSERT_EQ(cuda::rounded<cuda::Half>(x).bits, expected) << x;
        ASSERT_EQ(cuda::rounded<cuda::Bf16>(x).bits, c10::BFloat16(x).x) << x;
      }
    }
  }
  EXPECT_TRUE(std::isnan(cuda::value(cuda::rounded<cuda::Half>(NAN))));
  EXPECT_TRUE(std::isnan(cuda::value(cuda::rounded<cuda::Bf16>(NAN))));
}

TEST(CudaEmulation, GatesAndFeatureMaps) {
  const Given joint{2 * normal({7, 2 * 53}, 1)}, g{normal({7, 53}, 2)};
  for (const auto kind : {Gate::silu, Gate::relu, Gate::none}) {
    expect_like_cpu("gate " + std::to_string(static_cast<int>(kind)), {joint, g},
                    {blank({7, 53}), blank({7, 2 * 53})},
                    [kind](const Kernels& k, const Tensors& x, const Tensors& y) {
                      k.gated(kind, in(x[0]), out(y[0]), {7, 53});
                      k.gated_backward(kind, in(x[0]), in(x[1]), out(y[1]), {7, 53});
                    });
    // 7 rows of 50 elements in the same tensors.
    expect_like_cpu("padded gate " + std::to_string(static_cast<int>(kind)), {joint, g},
                    {blank_but({7, 53}, 50), blank_but({7, 2 * 53}, 100)},
                    [kind](const Kernels& k, const Tensors& x, const Tensors& y) {
                      k.gated(kind, in(x[0]), out(y[0]), {7, 50, 106, 53});
                      k.gated_backward(kind, in(x[0]), in(x[1]), out(y[1]), {7, 50, 106, 53});
                    });
  }
  for (const auto feature :
       {kernels::Feature::none, kernels::Feature::elu1, kernels::Feature::elu,
        kernels::Feature::relu, kernels::Feature::silu, kernels::Feature::exp}) {
    expect_like_cpu("feature " + std::to_string(static_cast<int>(feature)), {g, joint},
                    {blank({7, 53}), blank({7, 53})},
                    [feature](const Kernels& k, const Tensors& x, const Tensors& y) {
                      k.feature(feature, in(x[0]), out(y[0]), 371);
                      k.feature_backward(feature, in(x[0]), in(x[1]), out(y[1]), 371);
                    });
  }
}

TEST(CudaEmulation, NormsOfAnyTypes) {
  for (const std::int64_t dim : {2, 31, 32, 51, 200}) {
    const at::Tensor x = normal({5, dim}, 1), g = normal({5, dim}, 2);
    for (const bool wide_in : {false, true}) {
      for (const bool wide_out : {false, true}) {
        expect_like_cpu("norm of " + std::to_string(dim), {{x, wide_in}, {g, wide_out}},
                        {{at::full({5, dim}, NAN), wide_out}, {at::full({5, dim}, NAN), wide_in}},
                        [dim](const Kernels& k, const Tensors& t, const Tensors& y) {
                          k.srms_norm(in(t[0]), out(y[0]), 5, dim, 1e-6F);
                          k.srms_norm_backward(in(t[0]), in(t[1]), out(y[1]), 5, dim, 1e-6F);
                        });
      }
    }
  }
}

TEST(CudaEmulation, ResidualSumsWithDropoutAndNorm) {
  // Rows of 3 samples; 51 is not made of groups of four.
  for (const std::int64_t dim : {51, 64, 130}) {
    for (const double p : {0.0, 0.4}) {
      const kernels::Residual r{0, 12, 4, dim, 1e-6F, p > 0, some_mask(p)};
      const Given x = wide(normal({12, dim}, 1)), y{normal({12, dim}, 2)};
      const Given none = wide(at::full({12, dim}, NAN));
      const std::string what = "residual of " + std::to_string(dim) + ", p " + std::to_string(p);
      expect_like_cpu(what, {x, y}, {none, blank({12, dim}), none},
                      [&r](const Kernels& k, const Tensors& t, const Tensors& o) {
                        k.residual(r, in(t[0]), in(t[1]), out(o[0]), out(o[1]));
                        const kernels::Out unwanted{nullptr, element_type(t[1])};
                        k.residual(r, in(t[0]), in(t[1]), out(o[2]), unwanted);
                      });
      const Given d_sum = wide(normal({12, dim}, 3)), d_normed{normal({12, dim}, 4)};
      expect_like_cpu(what + ", backward", {x, d_sum, d_normed},
                      {none, blank({12, dim}), none, blank({12, dim}), none, blank({12, dim})},
                      [&r](const Kernels& k, const Tensors& t, const Tensors& o) {
                        const kernels::In without{nullptr, element_type(t[2])};
                        const kernels::Out unwanted{nullptr, element_type(t[2])};
                        k.residual_backward(r, in(t[0]), in(t[1]), in(t[2]), out(o[0]), out(o[1]));
                        k.residual_backward(r, in(t[0]), without, in(t[2]), out(o[2]), unwanted);
                        k.residual_backward(r, in(t[0]), in(t[1]), without,
                                            {nullptr, kernels::Element::f32}, out(o[3]));
                        k.residual_backward(r, in(t[0]), in(t[1]), in(t[2]), out(o[4]), out(o[5]));
                      });
    }
  }
}

TEST(CudaEmulation, SumsOverAnyNumberOfRows) {
  for (const std::int64_t rows : {0, 1, 64, 65, 4097}) {
    expect_like_cpu("sums of " + std::to_string(rows) + " rows", {{normal({rows, 13}, 1)}},
                    {wide(normal({13}, 2)), wide(normal({rows, 13}, 3))},
                    [rows](const Kernels& k, const Tensors& x, const Tensors& y) {
                      auto* sums = y[0].mutable_data_ptr<float>();
                      k.add_column_sums(in(x[0]), sums, rows, 13, 0, 5);
                      k.add_column_sums(in(x[0]), sums, rows, 13, 5, 13);
                      k.accumulate(in(x[0]), y[1].mutable_data_ptr<float>(), rows * 13);
                    });
  }
}

TEST(CudaEmulation, DropoutMasksOfAnyPart) {
  for (const std::int64_t elements : {1, 3, 4, 41}) {
    for (const std::uint64_t first : {0, 2, 7}) {
      kernels::Mask mask = some_mask(0.3);
      mask.first = first;
      const std::int64_t all = 5 * elements;
      expect_like_cpu("dropout of " + std::to_string(elements), {{normal({all}, 1)}},
                      {blank({all}), wide(at::full({elements}, NAN))},
                      [&](const Kernels& k, const Tensors& x, const Tensors& y) {
                        k.dropout(mask, in(x[0]), out(y[0]), elements, 0, all / 2);
                        k.dropout(mask, in(x[0]), out(y[0]), elements, all / 2, all);
                        k.dropout_mask(mask, y[1].mutable_data_ptr<float>(), elements);
                      });
    }
  }
}

TEST(CudaEmulation, AReplayedStepReadsItsCountersAnew) {
  kernels::LiveCounters counters{};
  const DropoutKey live{.seed = 9, .layer = -1, .site = 2, .live = &counters};
  const kernels::Mask recorded = kernel_mask(live, 0.5, 1, 3);
  const at::Tensor x = normal({3, 40}, 1);
  const auto dropped = [&x](const kernels::Mask& mask) {
    const at::Tensor y = at::empty_like(x);
    emulated_kernels().dropout(mask, in(x), out(y), 40, 0, 120);
    return y;
  };
  for (const std::int64_t update : {4, 5}) {
    for (const std::int64_t sample : {1000, 1003}) {
      counters = {static_cast<std::uint64_t>(update), static_cast<std::uint64_t>(sample)};
      const DropoutKey key{
          .seed = 9, .update = update, .layer = -1, .site = 2, .first_sample = sample};
      EXPECT_TRUE(at::equal(dropped(kernel_mask(key, 0.5, 1, 3)), dropped(recorded)));
    }
  }
}

}  // namespace
}  // namespace transnormer::ops
