#include "model/attention/against_loops.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "config/load.h"
#include "model/initializer.h"
#include "model/models.h"

namespace transnormer::test {
namespace {

void start(torch::nn::Module& module, const std::string& prefix) {
  if (auto* own = dynamic_cast<Initializable*>(&module)) {
    own->initialize(Initializer(7), prefix);
  }
  for (const auto& child : module.named_children()) {
    start(*child.value(), prefix + child.key() + ".");
  }
}

std::vector<bool> real_tokens(const ForwardContext& context, std::int64_t batch,
                              std::int64_t time) {
  std::vector<bool> real(static_cast<std::size_t>(batch * time), true);
  if (context.visibility.padding.defined()) {
    const at::Tensor padding = context.visibility.padding.contiguous();
    for (std::size_t i = 0; i < real.size(); ++i) {
      real[i] = !padding.const_data_ptr<bool>()[i];
    }
  }
  return real;
}

// The tokens of each segment of a row.
std::vector<std::vector<std::int64_t>> sequences(const ForwardContext& context,
                                                 const std::vector<bool>& real, std::int64_t sample,
                                                 std::int64_t time) {
  std::map<std::int64_t, std::vector<std::int64_t>> by_segment;
  for (std::int64_t t = 0; t < time; ++t) {
    if (real[static_cast<std::size_t>(sample * time + t)]) {
      const at::Tensor& segments = context.visibility.segments;
      by_segment[segments.defined() ? segments[sample][t].item<std::int64_t>() : 0].push_back(t);
    }
  }
  std::vector<std::vector<std::int64_t>> all;
  for (auto& [segment, tokens] : by_segment) {
    all.push_back(std::move(tokens));
  }
  return all;
}

at::Tensor doubled(const at::Tensor& x) {
  return x.to(at::kDouble);
}

// LRPE of x [batch, time, heads, dim], where the attention has it.
at::Tensor turned(Attention& attention, const at::Tensor& x, const ForwardContext& context) {
  const auto parameters = attention.named_parameters();
  if (!parameters.contains("lrpe.theta")) {
    return x;
  }
  const at::Tensor unit = doubled(attention.named_buffers()["lrpe.reflect"]);
  const at::Tensor y = x - 2 * at::matmul(x, unit).unsqueeze(-1) * unit;
  const at::Tensor positions =
      context.positions.defined()
          ? doubled(context.positions)
          : doubled(at::arange(x.size(1)) + context.first_position).expand({x.size(0), x.size(1)});
  const at::Tensor angles =
      (positions.unsqueeze(-1) * doubled(parameters["lrpe.theta"])).unsqueeze(2);
  const at::Tensor a = y.slice(3, 0, y.size(3), 2), b = y.slice(3, 1, y.size(3), 2);
  return at::stack({a * angles.cos() - b * angles.sin(), a * angles.sin() + b * angles.cos()}, -1)
      .flatten(3);
}

at::Tensor plainly(Attention& attention, const Plain& plain, const at::Tensor& x,
                   const ForwardContext& context, std::int64_t heads) {
  const auto parameters = attention.named_parameters();
  const auto affine = [&](const std::string& name, const at::Tensor& in) {
    return at::linear(in, doubled(parameters[name + ".weight"]),
                      doubled(parameters[name + ".bias"]));
  };
  const at::Tensor wide = doubled(x);
  const auto part = [&](const char* name) { return affine(name, wide).unflatten(-1, {heads, -1}); };
  const at::Tensor q = turned(attention, part("q_proj"), context);
  const at::Tensor k = turned(attention, part("k_proj"), context);
  const at::Tensor v = part("v_proj");
  const std::vector<bool> real = real_tokens(context, x.size(0), x.size(1));
  at::Tensor merged = at::zeros_like(v);
  for (std::int64_t sample = 0; sample < x.size(0); ++sample) {
    for (const auto& tokens : sequences(context, real, sample, x.size(1))) {
      const at::Tensor own = at::tensor(tokens, at::kLong);
      for (std::int64_t head = 0; head < heads; ++head) {
        const auto rows = [&](const at::Tensor& of) {
          return of.select(0, sample).select(1, head).index_select(0, own);
        };
        merged = merged.index_put(
            {at::full_like(own, sample), own, at::full_like(own, head)},
            plain.head(rows(q), rows(k), rows(v), {.sample = sample, .head = head}));
      }
    }
  }
  merged = merged.flatten(2);
  return affine("out_proj", plain.finish ? plain.finish(merged) : merged);
}

at::Tensor wave_like(const at::Tensor& x) {
  return at::sin(at::arange(x.numel(), at::kDouble) * 1.7).view(x.sizes());
}

// [batch, time, 1] in double, 1 at real tokens.
at::Tensor reals(const ForwardContext& context, const at::Tensor& x) {
  const at::Tensor all = at::ones({x.size(0), x.size(1), 1}, at::kDouble);
  return context.visibility.padding.defined()
             ? all.masked_fill(context.visibility.padding.unsqueeze(-1), 0)
             : all;
}

// The gradients of sum(y * wave) over real tokens, y = f(x): that of x, then by name.
using Gradients = std::vector<std::pair<std::string, at::Tensor>>;

Gradients gradients_of(Attention& attention, const at::Tensor& x, const at::Tensor& loss) {
  for (const at::Tensor& parameter : attention.parameters()) {
    parameter.mutable_grad().reset();
  }
  x.mutable_grad().reset();
  loss.backward();
  Gradients all{{"x", x.grad().clone()}};
  for (const auto& item : attention.named_parameters()) {
    EXPECT_TRUE(item.value().grad().defined()) << item.key();
    all.emplace_back(item.key(), item.value().grad().clone());
  }
  return all;
}

// Relative to `least` of the largest of all gradients where one is nothing but rounding: a key's
// bias shifts all scores of a query alike.
void expect_gradients(const Gradients& found, const Gradients& expected, double tolerance,
                      const std::string& what, double least = 1e-2) {
  const auto norm = [](const at::Tensor& x) { return x.to(at::kDouble).norm().item<double>(); };
  double largest = 0;
  for (const auto& [name, gradient] : expected) {
    largest = std::max(largest, norm(gradient));
  }
  ASSERT_EQ(found.size(), expected.size());
  for (std::size_t i = 0; i < found.size(); ++i) {
    const auto& [name, wanted] = expected[i];
    EXPECT_LT(norm(found[i].second.to(at::kDouble) - wanted.to(at::kDouble)),
              tolerance * std::max(norm(wanted), least * largest))
        << what << ", gradient of " << name;
  }
}

// x with rows of junk: `front` of them before, one behind each of the first `amid` tokens, `behind`
// after; the context says which, and where the real ones stand.
struct Padded {
  at::Tensor x;
  ForwardContext context;
  at::Tensor real;  // int64 [time], where the tokens are now
};

Padded padded(const at::Tensor& x, const ForwardContext& context, std::int64_t front,
              std::int64_t amid, std::int64_t behind, double junk) {
  const std::int64_t time = x.size(1);
  std::vector<std::int64_t> real;
  std::int64_t at_place = front;
  for (std::int64_t t = 0; t < time; ++t) {
    real.push_back(at_place++);
    at_place += t < amid ? 1 : 0;
  }
  const std::int64_t whole = at_place + behind;
  Padded made{.x = {}, .context = context, .real = at::tensor(real, at::kLong)};
  made.x = at::full({x.size(0), whole, x.size(2)}, junk, x.options()).index_copy(1, made.real, x);
  made.context.visibility.padding =
      at::ones({x.size(0), whole}, at::kBool).index_fill_(1, made.real, false);
  made.context.positions = at::full({x.size(0), whole}, 3, at::kLong)
                               .index_copy_(1, made.real, at::arange(time).expand({x.size(0), -1}));
  return made;
}

ForwardContext in_training(const ForwardContext& context, std::int64_t time) {
  ForwardContext training = context;
  training.training = true;
  training.seed = 4;
  training.update = 6;
  training.first_sample = 3;
  training.positions = at::arange(time).expand({3, time}).contiguous();
  return training;
}

}  // namespace

AttentionConfig attention_config(const std::string& json) {
  const std::string config = R"({"model": {"variant": "custom", "early": )" + json + "}}";
  return parse_config(config, "test").config.model.early;
}

std::shared_ptr<Attention> make_started(const std::string& json,
                                        const AttentionSettings& settings) {
  auto attention = make_attention(attention_config(json), settings);
  start(*attention, "attn.");
  const at::NoGradGuard no_gradients;
  for (const at::Tensor& parameter : attention->parameters()) {
    parameter.add_(wave_like(parameter), 0.1);
  }
  return attention;
}

at::Tensor some_input(std::int64_t batch, std::int64_t time, std::int64_t dim, std::uint64_t seed) {
  return at::randn({batch, time, dim}, at::detail::createCPUGenerator(seed), at::kFloat);
}

at::Tensor softmax_of_seen(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                           double scale,
                           const std::function<bool(std::int64_t, std::int64_t)>& sees) {
  std::vector<at::Tensor> outputs;
  for (std::int64_t i = 0; i < q.size(0); ++i) {
    std::vector<std::int64_t> seen;
    for (std::int64_t j = 0; j < k.size(0); ++j) {
      if (sees(i, j)) {
        seen.push_back(j);
      }
    }
    const at::Tensor keys = at::tensor(seen, at::kLong);
    const at::Tensor scores = at::mv(k.index_select(0, keys), q[i]) * scale;
    outputs.push_back(at::mv(v.index_select(0, keys).t(), at::softmax(scores, 0)));
  }
  return at::stack(outputs);
}

void expect_as_plain(Attention& attention, const Plain& plain, const at::Tensor& x,
                     const ForwardContext& context, const std::string& what) {
  const at::Tensor input = x.detach().clone().requires_grad_();
  const at::Tensor real = reals(context, x);
  const at::Tensor y = doubled(attention.forward(input, context, nullptr)) * real;
  const Gradients found = gradients_of(attention, input, (y * wave_like(y)).sum());
  const at::Tensor expected = plainly(attention, plain, input, context, /*heads=*/2) * real;
  EXPECT_LT(relative_error(y, expected), 1e-5) << what;
  expect_gradients(found, gradients_of(attention, input, (expected * wave_like(y)).sum()), 1e-4,
                   what);
}

std::vector<std::pair<std::string, ForwardContext>> contexts(std::int64_t time, bool causal) {
  ForwardContext plain;
  plain.visibility.causal = causal;
  ForwardContext padding = plain;
  padding.visibility.padding = at::zeros({3, time}, at::kBool);
  padding.visibility.padding[0].slice(0, 0, 2).fill_(true);
  padding.visibility.padding[0].slice(0, 5, 8).fill_(true);
  padding.visibility.padding[0].slice(0, time - 1).fill_(true);
  padding.visibility.padding[2].fill_(true);
  ForwardContext segments = plain;
  const at::Tensor t = at::arange(time, at::kLong);
  segments.visibility.segments = at::stack({t.div(time / 2 + 1, "floor"), t.remainder(2), t * 0});
  segments.positions = at::stack({t.remainder(7), t + 4, t});
  return {{"whole", plain}, {"padding", padding}, {"segments", segments}};
}

void expect_causal(Attention& attention, std::int64_t time, std::int64_t dim) {
  const at::NoGradGuard no_gradients;
  const at::Tensor x = some_input(2, time, dim);
  const at::Tensor other = some_input(2, time, dim, 5) * 3;
  const at::Tensor y = attention.forward(x, {}, nullptr);
  for (std::int64_t t = 0; t < time; ++t) {
    const at::Tensor changed = at::cat({x.narrow(1, 0, t), other.narrow(1, t, time - t)}, 1);
    const at::Tensor after = attention.forward(changed, {}, nullptr);
    EXPECT_TRUE(at::equal(after.narrow(1, 0, t), y.narrow(1, 0, t))) << "from token " << t;
    EXPECT_FALSE(at::equal(after.select(1, t), y.select(1, t))) << "token " << t;
  }
}

void expect_padding_unseen(Attention& attention, const ForwardContext& context, std::int64_t time,
                           std::int64_t dim) {
  const at::Tensor x = some_input(2, time, dim);
  const auto run = [&](const Padded& made) {
    const at::Tensor input = made.x.detach().clone().requires_grad_();
    const at::Tensor y = attention.forward(input, made.context, nullptr).index_select(1, made.real);
    Gradients gradients = gradients_of(attention, input, (doubled(y) * wave_like(y)).sum());
    gradients[0].second = gradients[0].second.index_select(1, made.real);
    return std::pair(y.detach(), gradients);
  };
  ForwardContext alone = context;
  alone.positions = at::arange(time).expand({2, time}).contiguous();
  const auto [plain, plain_gradients] = run({x, alone, at::arange(time)});
  struct Amount {
    std::int64_t front, amid, behind;
    double junk;
  };
  for (const Amount& amount :
       {Amount{0, 0, 3, 1}, Amount{5, 0, 0, -40}, Amount{0, 4, 0, 9}, Amount{2, 3, 30, 200}}) {
    const auto [y, gradients] =
        run(padded(x, alone, amount.front, amount.amid, amount.behind, amount.junk));
    const std::string what = std::to_string(amount.front) + " in front, " +
                             std::to_string(amount.amid) + " amidst, " +
                             std::to_string(amount.behind) + " behind";
    EXPECT_LT(relative_error(y, plain), 1e-5) << what;
    expect_gradients(gradients, plain_gradients, 1e-4, what);
  }
}

void expect_decodes(Attention& attention, std::int64_t time, std::int64_t dim) {
  const at::NoGradGuard no_gradients;
  const at::Tensor x = some_input(2, time, dim);
  const at::Tensor whole = attention.forward(x, {}, nullptr);
  for (const std::int64_t piece : {std::int64_t{1}, std::int64_t{4}, time}) {
    const auto state = attention.make_state(2);
    std::vector<at::Tensor> parts;
    ForwardContext context;
    while (context.first_position < time) {
      const std::int64_t count = std::min(piece, time - context.first_position);
      parts.push_back(
          attention.forward(x.narrow(1, context.first_position, count), context, state.get()));
      context.first_position += count;
    }
    EXPECT_LT(relative_error(at::cat(parts, 1), whole), 1e-5) << "by " << piece;
    EXPECT_GT(state->bytes(), 0);
  }
}

void expect_half_close(Attention& attention, const ForwardContext& context, std::int64_t time,
                       std::int64_t dim) {
  const at::Tensor x = some_input(2, time, dim).requires_grad_();
  const auto run = [&](at::ScalarType compute) {
    ForwardContext own = context;
    own.compute = compute;
    const at::Tensor y = attention.forward(x, own, nullptr);
    EXPECT_EQ(y.scalar_type(), compute);
    return std::pair(y.detach(), gradients_of(attention, x, (doubled(y) * wave_like(y)).sum()));
  };
  const auto [single, single_gradients] = run(at::kFloat);
  for (const auto& [type, tolerance] :
       {std::pair(at::kBFloat16, 0.03), std::pair(at::kHalf, 4e-3)}) {
    const auto [y, gradients] = run(type);
    EXPECT_LT(relative_error(y, single), tolerance) << type;
    expect_gradients(gradients, single_gradients, 2 * tolerance, c10::toString(type), 0.1);
  }
}

void expect_drops_by_place(Attention& attention, const ForwardContext& context, std::int64_t time,
                           std::int64_t dim) {
  const at::NoGradGuard no_gradients;
  const at::Tensor x = some_input(3, time, dim);
  const ForwardContext training = in_training(context, time);
  const at::Tensor y = attention.forward(x, training, nullptr);
  EXPECT_TRUE(at::equal(attention.forward(x, training, nullptr), y));
  ForwardContext other = training;
  other.update = 7;
  EXPECT_GT(relative_error(attention.forward(x, other, nullptr), y), 1e-3);
  other = training;
  other.training = false;
  EXPECT_GT(relative_error(attention.forward(x, other, nullptr), y), 1e-3);
  ForwardContext alone = training;
  alone.first_sample += 2;
  alone.positions = training.positions.narrow(0, 0, 1);
  const at::Tensor last = x.narrow(0, 2, 1);
  EXPECT_LT(relative_error(attention.forward(last, alone, nullptr), y.narrow(0, 2, 1)), 1e-5);
  EXPECT_GT(relative_error(attention.forward(x.narrow(0, 1, 1), alone, nullptr), y.narrow(0, 1, 1)),
            1e-3);

  const Padded least = padded(x, training, 0, 0, 1, 1);
  const at::Tensor expected =
      attention.forward(least.x, least.context, nullptr).index_select(1, least.real);
  for (const std::int64_t count : {1, 40}) {
    const Padded made = padded(x, training, count, 2, count, 30);
    const at::Tensor found =
        attention.forward(made.x, made.context, nullptr).index_select(1, made.real);
    EXPECT_LT(relative_error(found, expected), 1e-5) << count;
  }
}

void expect_drops_share(Attention& attention, const ForwardContext& context, double p,
                        std::int64_t together, std::int64_t time, std::int64_t dim) {
  const at::Tensor x = some_input(3, time, dim);
  const at::Tensor all = attention.weights(x, context);
  const at::Tensor dropped = attention.weights(x, in_training(context, time));
  const at::Tensor share = (dropped / all).masked_select(all > 1e-6);
  const double zeros = (share == 0).to(at::kDouble).mean().item<double>();
  const double independent = static_cast<double>(share.numel()) / static_cast<double>(together);
  EXPECT_NEAR(zeros, p, 5 * std::sqrt(p * (1 - p) / independent));
  EXPECT_LT((share.masked_select(share > 0) * (1 - p) - 1).abs().max().item<double>(), 1e-3);
}

std::vector<std::string> faults_of_settings(const std::string& json) {
  ModelConfig config = small_config(ModelVariant::t2);
  config.variant = ModelVariant::custom;
  config.causal = false;
  config.early = attention_config(json);
  return unfit_attentions(config, {.vocab_size = kWords, .max_positions = 16});
}

}  // namespace transnormer::test
