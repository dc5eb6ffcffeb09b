#include "optim/muon.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "dist/threads.h"
#include "model/baseline.h"
#include "model/model_size.h"
#include "model/transnormer.h"
#include "optim/plain_updates.h"
#include "optim/registry.h"
#include "util/error.h"

namespace transnormer::test {
namespace {

// A matrix by rows, in double precision.
struct Matrix {
  int rows, columns;
  std::vector<double> numbers;
  [[nodiscard]] double operator()(int i, int j) const {
    return numbers[static_cast<std::size_t>(i * columns + j)];
  }
};

Matrix times(const Matrix& a, const Matrix& b) {
  Matrix product{a.rows, b.columns, {}};
  for (int i = 0; i < a.rows; ++i) {
    for (int j = 0; j < b.columns; ++j) {
      double sum = 0;
      for (int k = 0; k < a.columns; ++k) {
        sum += a(i, k) * b(k, j);
      }
      product.numbers.push_back(sum);
    }
  }
  return product;
}

Matrix transposed(const Matrix& a) {
  Matrix result{a.columns, a.rows, {}};
  for (int j = 0; j < a.columns; ++j) {
    for (int i = 0; i < a.rows; ++i) {
      result.numbers.push_back(a(i, j));
    }
  }
  return result;
}

// The iteration over the rows, however many there are: p(x x^T) x is x p(x^T x).
Matrix plain_newton_schulz(Matrix x, std::int64_t steps, double eps) {
  double square = 0;
  for (const double number : x.numbers) {
    square += number * number;
  }
  for (double& number : x.numbers) {
    number /= std::max(std::sqrt(square), eps);
  }
  for (std::int64_t step = 0; step < steps; ++step) {
    const Matrix gram = times(x, transposed(x));
    const Matrix gram_squared = times(gram, gram);
    const Matrix cubic = times(gram, x);
    const Matrix quintic = times(gram_squared, x);
    for (std::size_t i = 0; i < x.numbers.size(); ++i) {
      x.numbers[i] =
          3.4445 * x.numbers[i] - 4.7750 * cubic.numbers[i] + 2.0315 * quintic.numbers[i];
    }
  }
  return x;
}

struct PlainMuon {
  MuonConfig settings;
  double weight_decay;
  Matrix value;
  std::vector<double> momentum = std::vector<double>(value.numbers.size(), 0.0);

  void step(int update) {
    const double mu = settings.momentum;
    Matrix direction{value.rows, value.columns, {}};
    for (std::size_t i = 0; i < momentum.size(); ++i) {
      const double gradient = static_cast<float>(chirp(update, static_cast<int>(i)));
      momentum[i] = mu * momentum[i] + (1 - mu) * gradient;
      direction.numbers.push_back(settings.nesterov ? mu * momentum[i] + (1 - mu) * gradient
                                                    : momentum[i]);
    }
    const Matrix change = plain_newton_schulz(direction, settings.ns_steps, settings.ns_eps);
    const double lr = rate(update);
    const double scale = lr * 0.2 * std::sqrt(std::max(value.rows, value.columns));
    for (std::size_t i = 0; i < momentum.size(); ++i) {
      value.numbers[i] -= lr * weight_decay * value.numbers[i] + scale * change.numbers[i];
    }
  }
};

OptimizerConfig muon(MuonConfig settings = {}, double weight_decay = 0.1) {
  OptimizerConfig config;
  config.rule = settings;
  config.weight_decay = weight_decay;
  return config;
}

void train(Optimizer& optimizer, int updates) {
  for (int update = 0; update < updates; ++update) {
    for (const NamedTensor& parameter : optimizer.parameters()) {
      set_gradient(parameter, update);
    }
    optimizer.step(rate(update));
  }
}

TEST(Muon, AgreesWithADoublePrecisionLoopOnMatricesOfAnyShape) {
  for (const MuonConfig& settings :
       {MuonConfig{}, MuonConfig{.momentum = 0.8, .nesterov = false, .ns_steps = 3}}) {
    for (const auto& [rows, columns] : {std::pair(5, 7), {7, 5}, {6, 6}, {1, 9}, {9, 1}, {3, 17}}) {
      const NamedTensor weight = parameter("layers.0.ffn.fc1.weight", start_of({rows, columns}));
      PlainMuon plain{settings, 0.1, {rows, columns, numbers_of(weight.tensor)}};
      const auto optimizer = make_optimizer({weight}, muon(settings));
      train(*optimizer, 50);
      for (int update = 0; update < 50; ++update) {
        plain.step(update);
      }
      const std::vector<double> values = numbers_of(weight.tensor);
      const std::vector<double> momenta = numbers_of(optimizer->named_state()[0].tensor);
      for (std::size_t i = 0; i < values.size(); ++i) {
        // The iteration multiplies the rounding of small singular values by up to 3.4445^5.
        ASSERT_NEAR(values[i], plain.value.numbers[i], 2e-6) << rows << " x " << columns;
        ASSERT_NEAR(momenta[i], plain.momentum[i], 1e-6) << rows << " x " << columns;
      }
    }
  }
}

TEST(Muon, AgreesWithPyTorchsMuonAndAdamW) {
  const std::map<std::string, at::Tensor> baseline = read_baseline("optimizers/muon");
  for (const bool nesterov : {true, false}) {
    std::vector<NamedTensor> weights;
    for (const auto& [name, tensor] : baseline) {
      if (name.starts_with("start.")) {
        weights.push_back(parameter(name.substr(6), tensor));
      }
    }
    ASSERT_EQ(weights.size(), 5U);
    train(*make_optimizer(weights, muon({.nesterov = nesterov})), 50);
    for (const NamedTensor& weight : weights) {
      const at::Tensor expected = baseline.at((nesterov ? "nesterov." : "plain.") + weight.name);
      EXPECT_LT((weight.tensor - expected).abs().max().item<double>(), 1e-6) << weight.name;
      EXPECT_GT((expected - baseline.at("start." + weight.name)).abs().max().item<double>(), 1e-3);
    }
  }
}

TEST(Muon, BringsAllSingularValuesOfAnUpdateNearTheSame) {
  const NamedTensor weight = parameter("layers.0.attn.q_proj.weight", at::zeros({24, 40}));
  const auto optimizer = make_optimizer({weight}, muon());
  weight.tensor.mutable_grad().copy_(start_of({24, 40}) + at::eye(24, 40) * 3);
  optimizer->step(1);
  const at::Tensor values = at::linalg_svdvals(weight.tensor.detach()) / (0.2 * std::sqrt(40.0));
  EXPECT_GT(values.min().item<double>(), 0.5);
  EXPECT_LT(values.max().item<double>(), 1.4);
}

TEST(Muon, LeavesAMatrixWithoutGradientToItsDecayAlone) {
  const NamedTensor weight = parameter("layers.0.attn.k_proj.weight", at::full({3, 4}, 2.0));
  const auto optimizer = make_optimizer({weight}, muon({}, 0.5));
  optimizer->step(0.1);
  EXPECT_TRUE(at::allclose(weight.tensor, at::full({3, 4}, 2.0 * (1 - 0.1 * 0.5))));
}

TEST(Muon, TreatsTheMatricesOfLayersAloneAndKeepsOneNumberOfThem) {
  ModelConfig config;
  config.layers = 2;
  config.dim = 8;
  config.heads = 2;
  config.norm = NormKind::layer;
  config.position = PositionKind::learned;
  config.tie_embeddings = false;
  config.output_bias = true;
  TransNormer model(config, {.vocab_size = 11, .max_positions = 16}, at::kCPU);
  initialize(model, 1);
  const auto optimizer = make_optimizer(named_tensors(model), muon());
  std::vector<std::string> matrices;
  double bytes = 0;
  for (const NamedTensor& state : optimizer->named_state()) {
    bytes += static_cast<double>(state.tensor.nbytes());
    if (state.name.starts_with("layers.0.") && state.name.ends_with(".momentum_buffer")) {
      matrices.push_back(state.name.substr(9, state.name.size() - 9 - 16));
    }
  }
  EXPECT_THAT(matrices, testing::UnorderedElementsAre("attn.q_proj.weight", "attn.k_proj.weight",
                                                      "attn.v_proj.weight", "attn.out_proj.weight",
                                                      "ffn.gate_proj.weight", "ffn.up_proj.weight",
                                                      "ffn.down_proj.weight"));
  EXPECT_EQ(optimizer->state_bytes(), bytes);
  EXPECT_EQ(optimizer->slots_of(0).size(), 2U);  // the embedding
}

TEST(Muon, IsNotSharedByProcesses) {
  const auto share = [](const OptimizerConfig& config, const dist::Group& group) {
    (void)make_optimizer({parameter("layers.0.a.weight", at::ones({4, 4}))}, config, group);
  };
  dist::with_group(2, [&](const dist::Group& group) {
    EXPECT_THROW(share(muon(), group), UserError);
    EXPECT_NO_THROW(share({}, group));
  });
  EXPECT_NO_THROW(share(muon(), {}));
}

}  // namespace
}  // namespace transnormer::test
