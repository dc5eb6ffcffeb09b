// Every instruction set that this processor runs, and every number of threads, gives the same.
#include "ops/kernels/kernels.h"

#include <ATen/Parallel.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "ops/activation.h"
#include "ops/attention/block_attention.h"
#include "ops/attention/linear_attention.h"
#include "ops/attention/lrpe.h"
#include "ops/kernels/step.h"
#include "ops/norm.h"
#include "ops/reference.h"
#include "ops/runtime/kernel_view.h"
#include "ops/runtime/parallel.h"
#include "ops/runtime/scratch.h"

namespace transnormer::ops {
namespace {

// Runs `body(kernels, poisoned outputs)` with every instruction set and compares the outputs.
void expect_all_equal(
    std::size_t outputs, const at::Tensor& like,
    const std::function<void(const kernels::Kernels&, const std::vector<at::Tensor>&)>& body) {
  std::vector<at::Tensor> first;
  for (const auto* const* k = kernels::all_kernels(); *k != nullptr; ++k) {
    std::vector<at::Tensor> out;
    for (std::size_t i = 0; i < outputs; ++i) {
      out.push_back(at::full_like(like, NAN));
    }
    body(**k, out);
    if (first.empty()) {
      first = out;
    }
    const double tolerance = like.scalar_type() == at::kFloat ? 2e-6 : 0x1.01p-7;
    for (std::size_t i = 0; i < outputs; ++i) {
      EXPECT_LT(distance(out[i], first[i]), tolerance) << (*k)->name << " output " << i;
    }
  }
}

class KernelsOf : public testing::TestWithParam<at::ScalarType> {
 protected:
  [[nodiscard]] at::Tensor some(std::uint64_t seed) const {
    return normal({1, 70, 2, 13}, seed).to(GetParam());
  }
  at::Tensor a = some(1), b = some(2), c = some(3), d = some(4);
};

TEST_P(KernelsOf, ElementsAndRowsAreFilledAlike) {
  const std::int64_t count = a.numel();
  expect_all_equal(7, a, [&](const kernels::Kernels& k, const std::vector<at::Tensor>& o) {
    const at::Tensor joint = at::cat({a.view({140, 13}), b.view({140, 13})}, 1);
    const at::Tensor d_joint = at::full_like(joint, NAN);
    k.gated(kernels::Gate::silu, in(joint), out(o[0]), {140, 13});
    k.gated_backward(kernels::Gate::silu, in(joint), in(c), out(d_joint), {140, 13});
    o[1].copy_(d_joint.slice(1, 0, 13).reshape(a.sizes()));
    o[2].copy_(d_joint.slice(1, 13).reshape(a.sizes()));
    k.feature(kernels::Feature::elu1, in(a), out(o[3]), count);
    k.feature_backward(kernels::Feature::elu1, in(a), in(b), out(o[4]), count);
    k.srms_norm(in(a), out(o[5]), 140, 13, 1e-6F);
    k.srms_norm_backward(in(a), in(b), out(o[6]), 140, 13, 1e-6F);
  });
}

// Rows of 13 and 26 elements that lie 16 and 32 apart: the same, and what is between stays.
TEST_P(KernelsOf, LeaveThePaddingOfRowsAlone) {
  const auto flat = [](const at::Tensor& x) { return x.reshape({140, 13}); };
  const auto padded = [](const at::Tensor& x, std::int64_t stride) {
    return at::constant_pad_nd(x, {0, stride - x.size(1)}, NAN);
  };
  const auto expect_same = [](const at::Tensor& found, const at::Tensor& dense,
                              const std::string& what) {
    EXPECT_TRUE(at::equal(found.narrow(1, 0, dense.size(1)), dense)) << what;
    EXPECT_TRUE(found.slice(1, dense.size(1)).isnan().all().item<bool>()) << what;
  };
  const at::Tensor joint = at::cat({flat(a), flat(b)}, 1), targets = at::arange(140) % 14 - 1;
  for (const auto* const* set = kernels::all_kernels(); *set != nullptr; ++set) {
    const kernels::Kernels& k = **set;
    const at::Tensor y = flat(at::empty_like(a)), d_joint = at::empty_like(joint);
    const at::Tensor wide_y = padded(y, 16), wide_d = padded(d_joint, 32);
    const at::Tensor wide_joint = padded(joint, 32), wide_c = padded(flat(c), 16);
    k.gated(kernels::Gate::silu, in(joint), out(y), {140, 13});
    k.gated(kernels::Gate::silu, in(wide_joint), out(wide_y), {140, 13, 32, 16});
    expect_same(wide_y, y, std::string(k.name) + " gated");
    k.gated_backward(kernels::Gate::silu, in(joint), in(c), out(d_joint), {140, 13});
    k.gated_backward(kernels::Gate::silu, in(wide_joint), in(wide_c), out(wide_d),
                     {140, 13, 32, 16});
    expect_same(wide_d, d_joint, std::string(k.name) + " gated_backward");
    const at::Tensor logits = flat(a).clone(), wide_logits = padded(logits, 16);
    const at::Tensor losses = at::empty({140}), wide_losses = at::empty({140});
    const float scale = 1;
    const auto* target = targets.const_data_ptr<std::int64_t>();
    k.cross_entropy(out(logits), target, losses.mutable_data_ptr<float>(), 140, 13, 13, &scale);
    k.cross_entropy(out(wide_logits), target, wide_losses.mutable_data_ptr<float>(), 140, 13, 16,
                    &scale);
    expect_same(wide_logits, logits, std::string(k.name) + " cross_entropy");
    EXPECT_TRUE(at::equal(losses, wide_losses)) << k.name;
  }
}

TEST_P(KernelsOf, LinearAttentionIsFilledAlike) {
  expect_all_equal(4, a, [&](const kernels::Kernels& k, const std::vector<at::Tensor>& o) {
    const Scratch scratch(kernels::linear_attention_scratch(2, 13, 13));
    const kernels::LinearAttention shape{0, 2, 70, 2, 13, 13, scratch.data()};
    k.linear_attention(shape, in(a), in(b), in(c), out(o[0]), nullptr);
    k.linear_attention_backward(shape, in(a), in(b), in(c), in(d), out(o[1]), out(o[2]), out(o[3]),
                                nullptr, {});
  });
}

TEST_P(KernelsOf, BlockAttentionIsFilledAlike) {
  for (const bool softmax : {true, false}) {
    expect_all_equal(4, a, [&](const kernels::Kernels& k, const std::vector<at::Tensor>& o) {
      const Scratch scratch(kernels::block_attention_scratch(33, 13));
      const kernels::Mask mask{1, 2, 3, 0, 1 << 22, 4.F / 3};
      const kernels::BlockAttention shape{
          0, 2, 70, 2, 13, 33, 0.3F, softmax, true, mask, scratch.data()};
      k.block_attention(shape, in(a), in(b), in(c), out(o[0]));
      k.block_attention_backward(shape, in(a), in(b), in(c), in(d), out(o[1]), out(o[2]), out(o[3]),
                                 nullptr);
    });
  }
}

// Token by token what chunks of them are, to within rounding.
TEST_P(KernelsOf, StepsOfLinearAttentionGoOnAsTheChunksDo) {
  constexpr std::int64_t kDim = 13;
  const Scratch scratch(kernels::linear_attention_scratch(2, kDim, kDim));
  const float decay[] = {0.9F, 0.99F};
  enum class Form { plain, fading, divided, floored };
  for (const Form form : {Form::plain, Form::fading, Form::divided, Form::floored}) {
    const bool divides = form == Form::divided || form == Form::floored;
    kernels::LinearAttention whole{0, 2, 70, 2, kDim, kDim, scratch.data()};
    whole.decay = form == Form::fading ? decay : nullptr;
    whole.divides = divides;
    whole.feature = divides ? kernels::Feature::elu1 : kernels::Feature::none;
    whole.floor = form == Form::floored ? 1000 : 1e-6F;  // between the least and the most
    for (const auto* const* k = kernels::all_kernels(); *k != nullptr; ++k) {
      const std::string what =
          std::string((*k)->name) + ", form " + std::to_string(static_cast<int>(form));
      const at::Tensor expected = at::full_like(a, NAN), y = at::full_like(a, NAN);
      const at::Tensor chunk_state = normal({2, kDim, kDim}, 9), state = chunk_state.clone();
      const at::Tensor chunk_keys = normal({2, kDim}, 10).abs(), keys = chunk_keys.clone();
      whole.key_sums = divides ? chunk_keys.mutable_data_ptr<float>() : nullptr;
      (*k)->linear_attention(whole, in(a), in(b), in(c), out(expected),
                             chunk_state.mutable_data_ptr<float>());
      kernels::LinearAttention step = whole;
      step.time = 1;
      step.key_sums = divides ? keys.mutable_data_ptr<float>() : nullptr;
      for (std::int64_t t = 0; t < 70; ++t) {
        const std::int64_t place = t * 2 * kDim;
        (*k)->step->linear_attention(step, in(a, place), in(b, place), in(c, place), out(y, place),
                                     state.mutable_data_ptr<float>());
      }
      EXPECT_LT(distance(y, expected), GetParam() == at::kFloat ? 2e-6 : 0x1.01p-7) << what;
      EXPECT_LT(distance(state, chunk_state), 2e-6) << what;
      EXPECT_LT(distance(keys, chunk_keys), 2e-6) << what;
    }
  }
}

// The last query of a block meets all of its keys.
TEST_P(KernelsOf, StepsToACacheAreTheLastRowsOfTheBlock) {
  for (const bool softmax : {true, false}) {
    for (const std::int64_t keys : {1, 5, 33}) {
      const Scratch scratch(kernels::block_attention_scratch(33, 13));
      const kernels::Mask none{};
      const kernels::BlockAttention block{0,     2,    keys,          2, 13, 33, 0.3F, softmax,
                                          false, none, scratch.data()};
      const kernels::CachedAttention step{0, 2, 2, 13, keys, 0.3F, softmax, scratch.data(), 0, 0};
      for (const auto* const* k = kernels::all_kernels(); *k != nullptr; ++k) {
        const at::Tensor expected = at::full_like(a, NAN);
        const at::Tensor y = at::full({2, 13}, NAN, a.options());
        (*k)->block_attention(block, in(a), in(b), in(c), out(expected));
        (*k)->step->cached_attention(step, in(a, (keys - 1) * 26), in(b), in(c), out(y));
        EXPECT_LT(distance(y, expected[0][keys - 1]), GetParam() == at::kFloat ? 2e-6 : 0x1.01p-7)
            << (*k)->name << ' ' << softmax << ' ' << keys;
      }
    }
  }
}

TEST_P(KernelsOf, CrossEntropyIsFilledAlike) {
  const at::Tensor targets = at::arange(20, at::kLong) * 5 % 91 - 1;
  expect_all_equal(1, a, [&](const kernels::Kernels& k, const std::vector<at::Tensor>& o) {
    o[0].copy_(a);
    const at::Tensor losses = at::full({20}, NAN);
    const float scale = 0.5F;
    k.cross_entropy(out(o[0]), targets.const_data_ptr<std::int64_t>(),
                    losses.mutable_data_ptr<float>(), 20, 91, 91, &scale);
    EXPECT_TRUE(at::isfinite(losses).all().item<bool>());
  });
}

// Of every kernel: the number in an input that is none makes the outputs that depend on it so, and
// no loss or gradient hides it.
TEST_P(KernelsOf, PassOnWhatIsNotANumber) {
  at::Tensor bad = a.clone();
  const at::Tensor place = bad.select(1, 40).select(1, 1).select(1, 5);
  place.fill_(NAN);
  const std::int64_t count = a.numel();
  const at::Tensor rotation = at::ones({70, 13}), unit = at::full({13}, 0.2);
  const at::Tensor position = at::ones({70}, at::kDouble), targets = at::ones({140}, at::kLong);
  const kernels::LrpeRows rows{0,
                               70,
                               70,
                               2,
                               13,
                               {rotation.const_data_ptr<float>(), position.const_data_ptr<double>(),
                                unit.const_data_ptr<float>(), 0, 70}};
  const kernels::Mask keep_all{1, 2, 3, 0, 0, 1};
  for (const auto* const* set = kernels::all_kernels(); *set != nullptr; ++set) {
    const kernels::Kernels& k = **set;
    const at::Tensor y = at::empty_like(a), y2 = at::empty_like(a), y3 = at::empty_like(a);
    // The outputs at the place (or of its row) are none, those of other heads and samples are.
    const auto expect_passed = [&](const at::Tensor& result, const std::string& what) {
      EXPECT_TRUE(result.select(1, 40).select(1, 1).select(1, 5).isnan().item<bool>())
          << k.name << " " << what;
      EXPECT_TRUE(result.select(2, 0).isfinite().all().item<bool>()) << k.name << " " << what;
    };
    for (const auto kind : {kernels::Gate::silu, kernels::Gate::relu, kernels::Gate::none}) {
      const std::string gate = "gate " + std::to_string(static_cast<int>(kind));
      const auto flat = [](const at::Tensor& x) { return x.reshape({140, 13}); };
      const at::Tensor bad_gate = at::cat({flat(bad), flat(b)}, 1);
      const at::Tensor good = at::cat({flat(at::ones_like(a)), flat(b)}, 1);
      const at::Tensor d_joint = at::empty_like(good);
      k.gated(kind, in(bad_gate), out(y), {140, 13});
      expect_passed(y, gate);
      k.gated_backward(kind, in(bad_gate), in(c), out(d_joint), {140, 13});
      expect_passed(d_joint.slice(1, 13).reshape(a.sizes()), gate + " backward");
      k.gated_backward(kind, in(good), in(bad), out(d_joint), {140, 13});
      expect_passed(d_joint.slice(1, 0, 13).reshape(a.sizes()), gate + " backward of a gradient");
    }
    for (const auto feature :
         {kernels::Feature::elu1, kernels::Feature::elu, kernels::Feature::relu,
          kernels::Feature::silu, kernels::Feature::exp}) {
      const std::string what = "feature " + std::to_string(static_cast<int>(feature));
      k.feature(feature, in(bad), out(y), count);
      expect_passed(y, what);
      if (feature != kernels::Feature::relu) {  // whose slope is 0 or 1
        k.feature_backward(feature, in(bad), in(b), out(y), count);
        expect_passed(y, what + " backward");
      }
      k.feature_backward(feature, in(a), in(bad), out(y), count);
      expect_passed(y, what + " backward of a gradient");
    }
    k.srms_norm(in(bad), out(y), 140, 13, 1e-6F);
    expect_passed(y, "norm");
    k.srms_norm_backward(in(bad), in(b), out(y), 140, 13, 1e-6F);
    expect_passed(y, "norm backward");
    k.dropout(keep_all, in(bad), out(y), count, 0, count);
    expect_passed(y, "dropout");
    k.lrpe(rows, in(bad), out(y));
    expect_passed(y, "lrpe");
    std::vector<double> d_theta(6);
    k.lrpe_backward(rows, in(b), in(bad), out(y), d_theta.data());
    expect_passed(y, "lrpe backward");
    EXPECT_TRUE(std::isnan(d_theta[2])) << k.name;

    const Scratch for_linear(kernels::linear_attention_scratch(2, 13, 13));
    const kernels::LinearAttention linear{0, 2, 70, 2, 13, 13, for_linear.data()};
    for (int operand = 0; operand < 3; ++operand) {
      const auto pick = [&](int i, const at::Tensor& good) {
        return in(i == operand ? bad : good);
      };
      k.linear_attention(linear, pick(0, a), pick(1, b), pick(2, c), out(y), nullptr);
      expect_passed(y, "linear attention");
      k.linear_attention_backward(linear, in(a), pick(0, b), pick(1, c), pick(2, d), out(y),
                                  out(y2), out(y3), nullptr, {});
      expect_passed(y, "linear attention backward");
    }
    const Scratch for_blocks(kernels::block_attention_scratch(33, 13));
    for (const bool softmax : {true, false}) {
      for (const bool drops : {true, false}) {
        const kernels::BlockAttention block{
            0, 2, 70, 2, 13, 33, 0.5, softmax, drops, keep_all, for_blocks.data()};
        const std::string what = "block attention " + std::to_string(softmax);
        for (int operand = 0; operand < 3; ++operand) {
          const auto pick = [&](int i, const at::Tensor& good) {
            return in(i == operand ? bad : good);
          };
          k.block_attention(block, pick(0, a), pick(1, b), pick(2, c), out(y));
          expect_passed(y, what);
        }
        k.block_attention_backward(block, in(a), in(bad), in(c), in(d), out(y), out(y2), out(y3),
                                   nullptr);
        expect_passed(y, what + " backward");
      }
    }
    const at::Tensor logits = bad.clone().view({140, 13});
    const at::Tensor losses = at::empty({140});
    const float scale = 1;
    k.cross_entropy(out(logits), targets.const_data_ptr<std::int64_t>(),
                    losses.mutable_data_ptr<float>(), 140, 13, 13, &scale);
    EXPECT_TRUE(std::isnan(losses[81].item<double>())) << k.name;
    expect_passed(logits.view_as(a), "cross entropy");
  }
}

INSTANTIATE_TEST_SUITE_P(Types, KernelsOf, testing::Values(at::kFloat, at::kBFloat16));

std::vector<at::Tensor> run_everything() {
  const at::Tensor x = leaf(normal({3, 300, 5, 16}, 1)), theta = leaf(normal({8}, 2));
  const at::Tensor unit = at::full({16}, 0.25);
  const at::Tensor q = lrpe(feature_map(x, FeatureMap::elu1), theta, unit, 0);
  const at::Tensor y = linear_attention(q, q, x);
  BlockAttentionOptions options;
  options.dropout = 0.1;
  const at::Tensor z = block_attention(x, q, y, options);
  const at::Tensor out = gated(at::cat({srms_norm(z, 1e-6, at::kFloat), x}, -1), Activation::silu);
  out.sum().backward();
  return {out.detach(), x.grad(), theta.grad()};
}

TEST(Threads, DoNotChangeTheBits) {
  const int before = at::get_num_threads();
  at::set_num_threads(1);
  const std::vector<at::Tensor> one = run_everything();
  at::set_num_threads(3);
  const std::vector<at::Tensor> three = run_everything();
  at::set_num_threads(before);
  for (std::size_t i = 0; i < one.size(); ++i) {
    EXPECT_TRUE(at::equal(one[i], three[i])) << "result " << i;
  }
}

TEST(Threads, ShareALoop) {
  const int before = at::get_num_threads();
  at::set_num_threads(2);
  std::vector<int> thread(2);
  parallel_for(2, 1, [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t i = first; i < last; ++i) {
      thread[static_cast<std::size_t>(i)] = at::get_thread_num();
    }
  });
  at::set_num_threads(before);
  EXPECT_NE(thread[0], thread[1]);
}

}  // namespace
}  // namespace transnormer::ops
