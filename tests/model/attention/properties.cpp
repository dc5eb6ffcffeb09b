#include "model/attention/properties.h"

#include <gtest/gtest.h>
#include <torch/nn/module.h>

#include <algorithm>
#include <numeric>
#include <vector>

#include "config/fields.h"
#include "model/initializer.h"
#include "model/models.h"

namespace transnormer::test {
namespace {

// Sets integers by their keys, and flags by 0 and 1.
class SetByKey : public FieldVisitor {
 public:
  explicit SetByKey(std::map<std::string, std::int64_t> values) : values_(std::move(values)) {}
  [[nodiscard]] bool all_used() const { return values_.empty(); }

  void flag(const Field& field, bool& value) override {
    take(field, [&](std::int64_t given) { value = given != 0; });
  }
  void integer(const Field& field, std::int64_t& value, const IntegerRange&) override {
    take(field, [&](std::int64_t given) { value = given; });
  }
  void number(const Field&, double&, const NumberRange&) override {}
  void number_pair(const Field&, std::array<double, 2>&, const NumberRange&) override {}
  void text(const Field&, std::string&, TextKind) override {}
  void paths(const Field&, std::vector<std::string>&) override {}
  void texts(const Field&, std::vector<std::string>&) override {}
  void choice(const Field&, const Choice&) override {}
  void alternatives(const Field&, UnionValue&) override {}
  void section(const Field&, const std::function<void()>& body) override { body(); }

 private:
  template <typename Set>
  void take(const Field& field, const Set& set) {
    if (const auto found = values_.find(field.key); found != values_.end()) {
      set(found->second);
      values_.erase(found);
    }
  }
  std::map<std::string, std::int64_t> values_;
};

void clear_gradients(const torch::nn::Module& module) {
  for (const at::Tensor& parameter : module.parameters()) {
    at::Tensor(parameter).mutable_grad().reset();
  }
}

using Gradients = std::map<std::string, at::Tensor>;

// Zeros where nothing came.
Gradients gradients_of(const torch::nn::Module& module) {
  Gradients all;
  for (const auto& item : module.named_parameters()) {
    const at::Tensor& gradient = item.value().grad();
    all[item.key()] = gradient.defined() ? gradient.clone() : at::zeros_like(item.value());
  }
  return all;
}

double magnitude(const at::Tensor& x) {
  return x.to(at::kDouble).norm().item<double>();
}

void expect_same_gradients(const Gradients& actual, const Gradients& expected, double tolerance,
                           const std::string& what) {
  double largest = 0;
  for (const auto& [name, gradient] : expected) {
    largest = std::max(largest, magnitude(gradient));
  }
  for (const auto& [name, wanted] : expected) {
    EXPECT_LT(magnitude(actual.at(name).to(at::kDouble) - wanted.to(at::kDouble)),
              tolerance * std::max(magnitude(wanted), 1e-3 * largest))
        << what << ", " << name;
  }
}

}  // namespace

AttentionConfig with_settings(const char* name,
                              const std::map<std::string, std::int64_t>& settings) {
  AttentionConfig config(name);
  SetByKey visitor(settings);
  config.visit(visitor);
  EXPECT_TRUE(visitor.all_used()) << name << " has no such setting";
  return config;
}

at::Tensor waves(at::IntArrayRef sizes, double seed) {
  const std::int64_t count = c10::multiply_integers(sizes);
  const at::Tensor i = at::arange(count, at::kDouble);
  return (at::cos(i * seed) + at::sin(i * i * (0.013 * seed))).to(at::kFloat).view(sizes);
}

void fill_parameters(torch::nn::Module& module, double std, std::uint64_t seed) {
  for (const auto& item : module.named_parameters()) {
    Initializer(seed).normal(item.value(), item.key(), std);
  }
}

void expect_as_in_double(const Subject& subject, const Reference& reference, std::int64_t time,
                         double tolerance, const std::string& what) {
  const at::Tensor x = waves({2, time, subject.dim}).requires_grad_();
  const at::Tensor weights = waves({2, time, subject.dim}, 0.91);
  clear_gradients(*subject.module);
  const at::Tensor y = subject.forward(x, {}, nullptr);
  (y * weights).sum().backward();
  Gradients ours = gradients_of(*subject.module);
  ours["x"] = x.grad();

  std::map<std::string, at::Tensor> parameters;
  for (const auto& item : subject.module->named_parameters()) {
    parameters[item.key()] = item.value().detach().to(at::kDouble).requires_grad_();
  }
  const at::Tensor wide = x.detach().to(at::kDouble).requires_grad_();
  const at::Tensor expected =
      at::stack({reference(wide[0], parameters), reference(wide[1], parameters)});
  EXPECT_LT(relative_error(y.detach(), expected.detach().to(at::kFloat)), tolerance)
      << what << ", " << time << " tokens";
  (expected * weights).sum().backward();
  Gradients wanted{{"x", wide.grad()}};
  for (const auto& [name, parameter] : parameters) {
    wanted[name] = parameter.grad().defined() ? parameter.grad() : at::zeros_like(parameter);
  }
  expect_same_gradients(ours, wanted, 10 * tolerance, what + ", " + std::to_string(time));
}

void expect_causal_to_the_bit(const Subject& subject, std::int64_t time, const std::string& what) {
  const at::NoGradGuard no_gradients;
  const at::Tensor x = waves({2, time, subject.dim});
  const at::Tensor before = subject.forward(x, {}, nullptr);
  for (std::int64_t t = 0; t < time; ++t) {
    at::Tensor other = x.clone();
    other.select(1, t).mul_(-1.7).add_(0.3);
    const at::Tensor after = subject.forward(other, {}, nullptr);
    EXPECT_TRUE(at::equal(after.narrow(1, 0, t), before.narrow(1, 0, t))) << what << ", " << t;
    EXPECT_FALSE(at::equal(after.select(1, t), before.select(1, t))) << what << ", " << t;
  }
}

void expect_padding_and_segments_unseen(const Subject& subject, std::int64_t time,
                                        const std::string& what) {
  const at::Tensor x = waves({2, time, subject.dim});
  const at::Tensor weights = waves({2, time, subject.dim}, 0.91);
  const auto run = [&](const at::Tensor& input, const ForwardContext& context,
                       const std::vector<at::Tensor>& places) {
    clear_gradients(*subject.module);
    const at::Tensor y = subject.forward(input, context, nullptr);
    std::vector<at::Tensor> rows;
    for (std::size_t row = 0; row < places.size(); ++row) {
      rows.push_back(y[static_cast<std::int64_t>(row)].index_select(0, places[row]));
    }
    const at::Tensor real = at::stack(rows);
    (real * weights).sum().backward();
    return std::pair(real.detach(), gradients_of(*subject.module));
  };
  const at::Tensor all = at::arange(time);
  const ForwardContext plain{.visibility = {.causal = subject.causal}};
  const auto [expected, wanted] = run(x, plain, {all, all});

  // Of the first row, of the second: places in front, one between, behind.
  for (const auto& [front, between, behind] :
       {std::tuple{3L, 0L, 0L}, {0L, 0L, 7L}, {2L, 5L, 1L}, {0L, 2L, 40L}}) {
    for (const double filler : {0.4, -30.0}) {
      const std::int64_t length = front + time + between + behind;
      const std::int64_t half = time / 2;
      const at::Tensor first = at::cat(
          {at::arange(front, front + half), at::arange(front + half + between, length - behind)});
      const at::Tensor second = at::arange(length - time, length);
      at::Tensor padded = at::full({2, length, subject.dim}, filler) + waves({2, length, 1});
      padded[0].index_copy_(0, first, x[0]);
      padded[1].index_copy_(0, second, x[1]);
      ForwardContext context = plain;
      context.visibility.padding = at::ones({2, length}, at::kBool);
      context.visibility.padding[0].index_fill_(0, first, at::Scalar(false));
      context.visibility.padding[1].index_fill_(0, second, at::Scalar(false));
      const auto [found, gradients] = run(padded, context, {first, second});
      const std::string where = what + ", padding " + std::to_string(front) + " " +
                                std::to_string(between) + " " + std::to_string(behind);
      EXPECT_LT(relative_error(found, expected), 2e-5) << where;
      expect_same_gradients(gradients, wanted, 2e-4, where);
    }
  }

  // Both rows' tokens in turn in one row, told apart by segments; another row of one segment.
  const at::Tensor mixed = at::stack({x[0], x[1]}, 1).flatten(0, 1);
  ForwardContext context = plain;
  context.visibility.segments =
      at::stack({at::arange(2 * time) % 2, at::zeros({2 * time})}).to(at::kLong);
  const at::Tensor packed =
      subject.forward(at::stack({mixed, waves({2 * time, subject.dim}, 0.5)}), context, nullptr);
  EXPECT_LT(
      relative_error(packed[0].detach(), at::stack({expected[0], expected[1]}, 1).flatten(0, 1)),
      2e-5)
      << what << ", segments";
}

void expect_decodes_as_whole(const Subject& subject, std::int64_t time, const std::string& what) {
  const at::NoGradGuard no_gradients;
  const at::Tensor x = waves({2, time, subject.dim});
  for (const auto type : {at::kFloat, at::kBFloat16}) {
    const at::Tensor whole = subject.forward(x, {.compute = type}, nullptr).to(at::kFloat);
    const std::vector<std::vector<std::int64_t>> cuts{
        {time},
        {1, time - 1},
        {3, 5, 1, time - 11, 2},
        std::vector<std::int64_t>(static_cast<std::size_t>(time), 1)};
    for (const auto& cut : cuts) {
      const auto state = subject.make_state(2);
      std::vector<at::Tensor> pieces;
      std::int64_t first = 0;
      for (const std::int64_t count : cut) {
        pieces.push_back(subject
                             .forward(x.narrow(1, first, count),
                                      {.compute = type, .first_position = first}, state.get())
                             .to(at::kFloat)
                             .clone());
        first += count;
      }
      EXPECT_LT(relative_error(at::cat(pieces, 1), whole), type == at::kFloat ? 2e-5 : 2e-2)
          << what << " in " << cut.size() << " pieces";
      EXPECT_GT(state->bytes(), 0);
    }
  }
}

void expect_close_in_half(const Subject& subject, std::int64_t time, double bf16, double fp16,
                          const std::string& what) {
  const at::Tensor x = waves({2, time, subject.dim});
  const ForwardContext exact{.visibility = {.causal = subject.causal}};
  const at::Tensor wanted = subject.forward(x, exact, nullptr).detach();
  for (const auto& [type, tolerance] : {std::pair(at::kBFloat16, bf16), {at::kHalf, fp16}}) {
    ForwardContext context = exact;
    context.compute = type;
    clear_gradients(*subject.module);
    const at::Tensor y = subject.forward(x, context, nullptr).to(at::kFloat);
    EXPECT_LT(relative_error(y.detach(), wanted), tolerance) << what;
    EXPECT_GT(relative_error(y.detach(), wanted), 0) << what;
    y.sum().backward();
    for (const auto& [name, gradient] : gradients_of(*subject.module)) {
      EXPECT_TRUE(at::isfinite(gradient).all().item<bool>()) << what << ", " << name;
    }
  }
}

}  // namespace transnormer::test
