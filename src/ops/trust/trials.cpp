#include "ops/trust/trials.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <iterator>
#include <sstream>

#include "ops/activation.h"
#include "ops/attention/block_attention.h"
#include "ops/attention/linear_attention.h"
#include "ops/attention/lrpe.h"
#include "ops/dropout.h"
#include "ops/loss/linear_cross_entropy.h"
#include "ops/norm.h"
#include "ops/residual.h"
#include "ops/runtime/kernel_table.h"
#include "ops/trust/kernel_names.h"
#include "ops/trust/mirrored_group.h"
#include "ops/weights/weight_gradient.h"

namespace transnormer::ops {
namespace {

using Tensors = std::vector<at::Tensor>;

constexpr double kEps = 1e-6;
constexpr DropoutKey kKey{
    .seed = 7, .update = 3, .layer = 2, .site = 1, .first_sample = 5, .first_element = 6};

// Operands as a function of their number: the same values with and without a kernel.
class Operands {
 public:
  Operands(const at::Device& device, at::ScalarType rounded, at::ScalarType type)
      : device_(device), rounded_(rounded), type_(type) {}

  [[nodiscard]] at::Tensor wide(at::IntArrayRef sizes) {
    return at::randn(sizes, at::detail::createCPUGenerator(++made_), at::kFloat).to(device_);
  }
  [[nodiscard]] at::Tensor some(at::IntArrayRef sizes) { return rounded(sizes).to(type_); }
  // For what stays in fp32 until the operator rounds it.
  [[nodiscard]] at::Tensor rounded(at::IntArrayRef sizes) {
    return wide(sizes).to(rounded_).to(at::kFloat);
  }
  [[nodiscard]] at::ScalarType type() const { return type_; }

 private:
  at::Device device_;
  at::ScalarType rounded_;
  at::ScalarType type_;
  std::uint64_t made_ = 0;
};

at::Tensor leaf(const at::Tensor& x) {
  return x.detach().requires_grad_();
}

// The gradients of `inputs` for random ones of the results.
Tensors gradients(const Tensors& results, const Tensors& inputs, Operands& x) {
  Tensors given;
  for (const at::Tensor& result : results) {
    given.push_back(x.rounded(result.sizes()).to(result.scalar_type()));
  }
  return torch::autograd::grad(results, inputs, given);
}

enum class Part { forward, backward };

Tensors part_of(Part part, const Tensors& results, const Tensors& inputs, Operands& x) {
  if (part == Part::backward) {
    return gradients(results, inputs, x);
  }
  Tensors plain;
  for (const at::Tensor& result : results) {
    plain.push_back(result.detach());
  }
  return plain;
}

Tensors gates(Part part, Operands x) {
  Tensors results;
  for (const auto kind : {Activation::silu, Activation::relu, Activation::none}) {
    const at::Tensor gate_up = x.some({3, 37, 106});
    results.push_back(part == Part::forward ? gated(gate_up, kind)
                                            : gated_backward(x.some({3, 37, 53}), gate_up, kind));
  }
  return results;
}

Tensors feature_maps(Part part, Operands x) {
  Tensors results;
  for (const auto map :
       {FeatureMap::elu1, FeatureMap::elu, FeatureMap::relu, FeatureMap::silu, FeatureMap::exp}) {
    const at::Tensor in = leaf(x.some({5, 333}));
    results.push_back(part_of(part, {feature_map(in, map)}, {in}, x)[0]);
  }
  return results;
}

// In rows of a warp and of several.
Tensors norms(Part part, Operands x) {
  Tensors results;
  for (const std::int64_t dim : {51, 512}) {
    const at::Tensor in = x.some({37, dim}), stream = x.wide({37, dim});
    if (part == Part::forward) {
      results.push_back(srms_norm(in, kEps, x.type()));
      results.push_back(srms_norm(stream, kEps, x.type()));
    } else {
      results.push_back(srms_norm_backward(x.some({37, dim}), in, kEps));
      results.push_back(srms_norm_backward(x.some({37, dim}), stream, kEps));
    }
  }
  return results;
}

Tensors residuals(Part part, Operands x) {
  Tensors results;
  for (const double p : {0.0, 0.3}) {
    const at::Tensor stream = leaf(x.wide({3, 29, 51})), branch = leaf(x.some({3, 29, 51}));
    const StreamAndNorm made = residual_srms_norm(stream, branch, {p, kKey}, kEps, x.type());
    std::ranges::move(part_of(part, {made.stream, made.normed}, {stream, branch}, x),
                      std::back_inserter(results));
  }
  return results;
}

Tensors column_sums(Operands x) {
  const at::Tensor sum = x.wide({133});
  add_bias_gradient(sum, x.some({71, 133}));
  return {sum};
}

Tensors accumulated(Operands x) {
  const at::Tensor sum = x.wide({31, 45});
  add_weight_gradient(sum, x.some({71, 31}), x.some({71, 45}));
  return {sum};
}

Tensors rotations(Part part, Operands x) {
  const at::Tensor direction = x.wide({24});
  const at::Tensor unit = direction / direction.norm();
  Tensors results;
  for (const std::int64_t period : {0, 8}) {
    const at::Tensor in = leaf(x.some({2, 37, 3, 24})), theta = leaf(x.wide({12}).abs());
    std::ranges::move(part_of(part, {lrpe(in, theta, unit, 3, period)}, {in, theta}, x),
                      std::back_inserter(results));
  }
  return results;
}

// Odd sizes with an encoding of queries and keys, and the usual width of heads without.
struct HeadSizes {
  std::int64_t time;
  std::int64_t dim;
  bool encoded;
};
constexpr HeadSizes kHeadSizes[] = {{75, 24, true}, {150, 64, false}};

Encoding encoding_of(const HeadSizes& sizes, const at::Tensor& theta, Operands& x) {
  if (!sizes.encoded) {
    return {};
  }
  const at::Tensor direction = x.wide({sizes.dim});
  return {.feature = FeatureMap::elu1,
          .theta = theta,
          .reflect = direction / direction.norm(),
          .first_position = 0,
          .period = 0};
}

// Of whole sequences, and of parts with others before and behind them; with decay, divided, of
// logarithms.
Tensors linear_attentions(Part part, Operands x) {
  const dist::Group alone, others = mirrored_group();
  Tensors results;
  const auto add = [&](const HeadSizes& sizes, LinearAttentionOptions options) {
    const auto heads = [&] { return leaf(x.some({2, sizes.time, 3, sizes.dim})); };
    const at::Tensor q = heads(), k = heads(), v = heads();
    const at::Tensor theta = leaf(x.wide({sizes.dim / 2}).abs());
    options.encoding = encoding_of(sizes, theta, x);
    if (options.floor && !options.logarithms) {
      options.encoding.feature = FeatureMap::elu1;
    }
    const at::Tensor y = linear_attention(q, k, v, options);
    std::ranges::move(
        part_of(part, {y}, sizes.encoded ? Tensors{q, k, v, theta} : Tensors{q, k, v}, x),
        std::back_inserter(results));
  };
  const at::Tensor decay = at::tensor({0.8F, 0.97F, 1.F}).to(x.wide({1}).device());
  for (const HeadSizes& sizes : kHeadSizes) {
    for (const dist::Group* sequence : {&alone, &others}) {
      add(sizes, {.sequence = sequence});
      add(sizes, {.sequence = sequence, .decay = decay});
    }
    // The floor holds for some tokens at the start.
    add(sizes, {.floor = static_cast<double>(sizes.dim)});
    if (!sizes.encoded) {
      add(sizes, {.logarithms = true});
      add(sizes, {.floor = 0, .logarithms = true});
    }
  }
  return results;
}

Tensors block_attentions(Part part, Operands x) {
  Tensors results;
  for (const HeadSizes& sizes : kHeadSizes) {
    for (const auto score : {ScoreKind::softmax, ScoreKind::relu}) {
      const auto heads = [&] { return leaf(x.some({2, sizes.time, 3, sizes.dim})); };
      const at::Tensor q = heads(), k = heads(), v = heads();
      const at::Tensor theta = leaf(x.wide({sizes.dim / 2}).abs());
      // Dropout keeps the library's fused attention out, which is no kernel of ours.
      const BlockAttentionOptions options{.score = score,
                                          .block = sizes.encoded ? 16 : 64,
                                          .scale = 0.2,
                                          .dropout = 0.2,
                                          .dropout_key = kKey,
                                          .encoding = encoding_of(sizes, theta, x)};
      std::ranges::move(part_of(part, {block_attention(q, k, v, options)},
                                sizes.encoded ? Tensors{q, k, v, theta} : Tensors{q, k, v}, x),
                        std::back_inserter(results));
    }
  }
  return results;
}

// Words that a pack of elements divides, and others.
Tensors losses(Operands x) {
  Tensors results;
  for (const std::int64_t words : {1032, 1037}) {
    const at::Tensor hidden = leaf(x.some({50, 24})), weight = x.rounded({words, 24});
    const at::Tensor targets =
        (at::arange(50, weight.options().dtype(at::kLong)) * 31 % words).sub_(1);
    LinearCrossEntropyOptions options;
    options.compute = x.type();
    options.scale = at::full({}, 0.37, hidden.options().dtype(at::kFloat).requires_grad(false));
    results.push_back(token_losses(hidden, weight, targets, options));
    const at::Tensor loss = linear_cross_entropy(hidden, weight, targets, options).loss;
    results.push_back(torch::autograd::grad({loss}, {hidden})[0]);
  }
  return results;
}

template <typename Run>
KernelTrial trial(const char* kernel, Run run) {
  return {kernel, [run](const at::Device& device, at::ScalarType rounded, at::ScalarType type) {
            return run(Operands(device, rounded, type));
          }};
}

template <typename Run>
void add_both(std::vector<KernelTrial>& trials, const std::string& kernel, Run run) {
  trials.push_back(trial(kernel.c_str(), [run](Operands x) { return run(Part::forward, x); }));
  trials.push_back(
      trial((kernel + "_backward").c_str(), [run](Operands x) { return run(Part::backward, x); }));
}

std::vector<KernelTrial> make_trials() {
  std::vector<KernelTrial> trials;
  add_both(trials, "gated", gates);
  add_both(trials, "feature", feature_maps);
  add_both(trials, "srms_norm", norms);
  add_both(trials, "residual", residuals);
  trials.push_back(trial("add_column_sums", column_sums));
  trials.push_back(trial("accumulate", accumulated));
  trials.push_back(trial("dropout", [](Operands x) {
    return Tensors{dropout(x.some({4, 513}), 0.3, kKey)};
  }));
  trials.push_back(trial("dropout_mask", [](Operands x) {
    return Tensors{dropout_mask(4, 513, 0.3, kKey, x.wide({1}).device())};
  }));
  add_both(trials, "lrpe", rotations);
  add_both(trials, "linear_attention", linear_attentions);
  add_both(trials, "block_attention", block_attentions);
  trials.push_back(trial("cross_entropy", losses));
  return trials;
}

// The kernel by itself, and the other half of a pair that is used together only.
kernels::Kernels only(const std::string& kernel, const kernels::Kernels& table) {
  const std::string kBackward = "_backward";
  const std::string forward =
      kernel.ends_with(kBackward) ? kernel.substr(0, kernel.size() - kBackward.size()) : kernel;
  const bool is_pair = forward == "linear_attention" || forward == "block_attention";
  kernels::Kernels result{};
  result.name = table.name;
  for_each_kernel([&](const std::string& name, auto member) {
    if (name == kernel || (is_pair && (name == forward || name == forward + kBackward))) {
      result.*member = table.*member;
    }
  });
  return result;
}

// Of the largest value: rounding has its place, an error has not.
double tolerance_of(at::ScalarType type) {
  switch (type) {
    case at::kBFloat16:
      return 2e-2;
    case at::kHalf:
      return 4e-3;
    default:
      return 5e-4;
  }
}

double relative_difference(const at::Tensor& found, const at::Tensor& expected) {
  constexpr double kLeastScale = 0.1;
  const at::Tensor wanted = expected.to(at::kCPU, at::kDouble);
  const double scale = std::max(wanted.abs().max().item<double>(), kLeastScale);
  const double difference = (found.to(at::kCPU, at::kDouble) - wanted).abs().max().item<double>();
  return difference / scale;
}

}  // namespace

const std::vector<KernelTrial>& kernel_trials() {
  static const std::vector<KernelTrial> trials = make_trials();
  return trials;
}

std::string disagreement(const KernelTrial& trial, const kernels::Kernels& table,
                         const at::Device& device) {
  for (const auto type : {at::kFloat, at::kBFloat16, at::kHalf}) {
    if (type == at::kHalf && device.is_cpu()) {
      continue;
    }
    const auto run_with = [&](const kernels::Kernels& kernels, at::ScalarType held) {
      const KernelsGuard guard(device.type(), kernels);
      return trial.run(device, type, held);
    };
    const Tensors expected = run_with(kernels::Kernels{}, at::kFloat);
    const Tensors found = run_with(only(trial.kernel, table), type);
    for (std::size_t i = 0; i < expected.size(); ++i) {
      const double difference = relative_difference(found[i], expected[i]);
      if (!(difference <= tolerance_of(type))) {
        std::ostringstream text;
        text << "its results in " << c10::toString(type) << " differ by " << difference
             << " of the largest";
        return text.str();
      }
    }
  }
  return {};
}

}  // namespace transnormer::ops
