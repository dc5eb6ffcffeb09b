// The gated attention units against plain loops in double.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "model/attention/properties.h"
#include "model/attention/registry.h"
#include "model/models.h"
#include "model/weights.h"
#include "util/error.h"

namespace transnormer::test {
namespace {

constexpr std::int64_t kDim = 10, kKeys = 6, kChunk = 4, kPositions = 7;

ModelConfig model_of(bool causal) {
  ModelConfig model;
  model.dim = kDim;
  model.causal = causal;
  return model;
}

struct Unit {
  explicit Unit(const char* name, bool is_causal) : model(model_of(is_causal)) {
    const AttentionConfig config =
        with_settings(name, {{"expansion", 2}, {"key_dim", kKeys}, {"chunk", kChunk}});
    block = make_block(config, {.model = model, .max_positions = kPositions});
    fill_parameters(*block, 0.7);
    subject = {
        .module = block,
        .forward =
            [this](const at::Tensor& x, const ForwardContext& context, AttentionState* state) {
              ForwardContext here = context;
              here.visibility.causal = model.causal;
              return block->forward(x, here, state);
            },
        .make_state = [this](std::int64_t batch) { return block->make_state(batch); },
        .dim = kDim,
        .causal = is_causal};
  }
  ModelConfig model;
  std::shared_ptr<Block> block;
  Subject subject;
};

// Pairs (i, i + kKeys / 2) turned by t 10000^(-2i / kKeys).
at::Tensor turned(const at::Tensor& x, std::int64_t t) {
  std::vector<at::Tensor> low, high;
  for (std::int64_t i = 0; i < kKeys / 2; ++i) {
    const double angle =
        static_cast<double>(t) * std::pow(1e4, -2.0 * static_cast<double>(i) / kKeys);
    low.push_back(x[i] * std::cos(angle) - x[i + kKeys / 2] * std::sin(angle));
    high.push_back(x[i] * std::sin(angle) + x[i + kKeys / 2] * std::cos(angle));
  }
  low.insert(low.end(), high.begin(), high.end());
  return at::stack(low);
}

Reference reference(bool chunked, bool causal,
                    std::vector<std::vector<double>>* weights = nullptr) {
  return [=](const at::Tensor& x, const std::map<std::string, at::Tensor>& all) {
    const auto p = [&](const std::string& name) { return all.at("attn." + name); };
    const auto silu = [&](const std::string& name, const at::Tensor& y) {
      return at::silu(at::linear(y, p(name + ".weight"), p(name + ".bias")));
    };
    const at::Tensor y = p("norm_scale") * x / at::sqrt(x.square().mean(-1, true) + 1e-5);
    const at::Tensor u = silu("u_proj", y), v = silu("v_proj", y), z = silu("z_proj", y);
    const std::int64_t time = x.size(0);
    const auto keys = [&](const std::string& name, std::int64_t t) {
      return turned(z[t] * p(name + "_scale") + p(name + "_offset"), t);
    };
    const double scale = 1.0 / static_cast<double>(chunked ? kChunk : kPositions);
    std::vector<at::Tensor> rows;
    if (weights != nullptr) {
      weights->assign(static_cast<std::size_t>(time),
                      std::vector<double>(static_cast<std::size_t>(time)));
    }
    for (std::int64_t i = 0; i < time; ++i) {
      at::Tensor sum = at::zeros_like(v[0]);
      for (std::int64_t j = 0; j < time; ++j) {
        at::Tensor weight = at::zeros({}, at::kDouble);
        const std::int64_t own = i / kChunk, other = j / kChunk;
        if ((!causal || j <= i) && (!chunked || own == other)) {
          const std::int64_t far = std::clamp<std::int64_t>(j - i, 1 - kPositions, kPositions - 1);
          const at::Tensor score = at::dot(keys("query", i), keys("key", j)) * scale +
                                   p("offset_bias")[kPositions - 1 + far];
          weight = weight + at::relu(score).square();
        }
        if (chunked && (!causal || other < own)) {
          weight = weight + at::dot(keys("global_query", i), keys("global_key", j)) * scale;
        }
        sum = sum + weight * v[j];
        if (weights != nullptr) {
          (*weights)[static_cast<std::size_t>(i)][static_cast<std::size_t>(j)] =
              weight.item<double>();
        }
      }
      rows.push_back(sum);
    }
    return x + at::linear(u * at::stack(rows), p("out_proj.weight"), p("out_proj.bias"));
  };
}

class GatedUnits : public testing::TestWithParam<std::tuple<const char*, bool>> {
 protected:
  [[nodiscard]] const char* name() const { return std::get<0>(GetParam()); }
  [[nodiscard]] bool causal() const { return std::get<1>(GetParam()); }
  [[nodiscard]] bool chunked() const { return std::string(name()) == "flash"; }
};

INSTANTIATE_TEST_SUITE_P(All, GatedUnits,
                         testing::Combine(testing::Values("flash", "flash_quad"), testing::Bool()));

TEST_P(GatedUnits, AreTheFormula) {
  const Unit unit(name(), causal());
  for (const std::int64_t time : {1, 4, 13, 19}) {
    expect_as_in_double(unit.subject, reference(chunked(), causal()), time, 1e-5, name());
  }
}

TEST_P(GatedUnits, GiveTheWeightsOfTheValues) {
  const Unit unit(name(), causal());
  const at::Tensor x = waves({1, 27, kDim});
  ForwardContext context;
  context.visibility.causal = causal();
  std::vector<std::vector<double>> weights;
  std::map<std::string, at::Tensor> parameters;
  for (const auto& item : unit.block->named_parameters()) {
    parameters[item.key()] = item.value().detach().to(at::kDouble);
  }
  static_cast<void>(reference(chunked(), causal(), &weights)(x[0].to(at::kDouble), parameters));
  const at::Tensor found = unit.block->attention_weights(x, context);
  ASSERT_EQ(found.sizes(), at::IntArrayRef({1, 1, 27, 27}));
  for (std::size_t i = 0; i < 27; ++i) {
    for (std::size_t j = 0; j < 27; ++j) {
      EXPECT_NEAR(
          found[0][0][static_cast<std::int64_t>(i)][static_cast<std::int64_t>(j)].item<double>(),
          weights[i][j], 1e-3);
    }
  }
}

TEST_P(GatedUnits, SeeNeitherPaddingNorOtherSegments) {
  const Unit unit(name(), causal());
  expect_padding_and_segments_unseen(unit.subject, 11, name());
}

TEST_P(GatedUnits, AreCloseInHalfPrecisions) {
  Unit unit(name(), causal());
  expect_close_in_half(unit.subject, 19, 0.05, 0.01, name());
}

TEST_P(GatedUnits, TakePositionsThatAreNamedByTheirDifferences) {
  const at::NoGradGuard no_gradients;
  const Unit unit(name(), causal());
  const at::Tensor x = waves({2, 13, kDim});
  const at::Tensor own = unit.subject.forward(x, {}, nullptr);
  ForwardContext moved;
  moved.positions = (at::arange(13) + 5).expand({2, 13});
  EXPECT_LT(relative_error(unit.subject.forward(x, moved, nullptr), own), 1e-5);
  ForwardContext spread;
  spread.positions = (at::arange(13) * 3).expand({2, 13});
  EXPECT_GT(relative_error(unit.subject.forward(x, spread, nullptr), own), 1e-3);
}

TEST(GatedUnit, NeverSeesTheFuture) {
  for (const char* name : {"flash", "flash_quad"}) {
    expect_causal_to_the_bit(Unit(name, true).subject, 19, name);
  }
}

TEST(GatedUnit, DecodesAsItReadsWholeSequences) {
  for (const char* name : {"flash", "flash_quad"}) {
    expect_decodes_as_whole(Unit(name, true).subject, 23, name);
  }
}

TEST(GatedUnit, OfLinearTimeKeepsAStateThatDoesNotGrow) {
  const at::NoGradGuard no_gradients;
  const Unit unit("flash", true);
  const auto state = unit.block->make_state(1);
  static_cast<void>(unit.block->forward(waves({1, 23, kDim}), {}, state.get()));
  const std::int64_t bytes = state->bytes();
  EXPECT_EQ(static_cast<double>(bytes), unit.block->state_bytes(at::kFloat).fixed);
  static_cast<void>(unit.block->forward(waves({1, 300, kDim}), {}, state.get()));
  EXPECT_EQ(state->bytes(), bytes);
}

// The sums over the chunks, some 600 * 300 * 5 / 4, are beyond half's 65,504; what queries take of
// them is not.
TEST(GatedUnit, InHalfStaysRightWhereItsSumsAreBeyondHalf) {
  const at::NoGradGuard no_gradients;
  const Unit unit("flash", true);
  auto parameters = unit.block->named_parameters();
  parameters["attn.v_proj.bias"].fill_(5);
  parameters["attn.global_key_offset"].fill_(300);
  parameters["attn.global_query_scale"].mul_(1e-4);
  parameters["attn.global_query_offset"].fill_(1e-4);
  const at::Tensor x = waves({1, 600, kDim});
  const at::Tensor exact = unit.block->forward(x, {}, nullptr);
  for (const bool decoding : {false, true}) {
    const auto state = unit.block->make_state(1);
    const at::Tensor half =
        unit.block->forward(x, {.compute = at::kHalf}, decoding ? state.get() : nullptr);
    EXPECT_LT(relative_error(half, exact), 0.01);
  }
}

std::int64_t parameters_of(const char* name) {
  ModelConfig model;
  model.dim = 512;
  const auto block = make_block(name, {.model = model, .max_positions = 512, .device = at::kMeta});
  std::int64_t count = 0;
  for (const at::Tensor& parameter : block->parameters()) {
    count += parameter.numel();
  }
  return count;
}

TEST(GatedUnit, HasThePublishedNumberOfParameters) {
  EXPECT_EQ(parameters_of("flash_quad"), 1'642'880);
  EXPECT_EQ(parameters_of("flash"), 1'643'392);
}

TEST(GatedUnit, StartsAsPublished) {
  ModelConfig config = small_config(ModelVariant::t2);
  config.variant = ModelVariant::custom;
  config.late = "flash";
  config.early_layers = 0;
  const auto model = make_model(config);
  for (const NamedTensor& named : named_tensors(*model)) {
    const auto is = [&](const char* end) { return named.name.ends_with(end); };
    if (is("attn.norm_scale")) {
      EXPECT_TRUE(at::equal(named.tensor, at::ones({1}))) << named.name;
    } else if (is("query_offset") || is("key_offset")) {
      EXPECT_EQ(named.tensor.abs().max().item<double>(), 0) << named.name;
    } else if (is("_scale") || is("offset_bias") || is("unused_offset")) {
      EXPECT_NEAR(named.tensor.std().item<double>(), 0.02, 0.006) << named.name;
    } else if (is("u_proj.bias")) {
      EXPECT_NEAR(named.tensor.abs().max().item<double>(), 1 / std::sqrt(24.0), 0.02);
    }
  }
}

TEST(GatedUnit, RefusesAnOddWidthOfKeysInOneLine) {
  ModelConfig config = small_config(ModelVariant::t2);
  config.variant = ModelVariant::custom;
  config.early_layers = 0;
  config.late = with_settings("flash", {{"key_dim", 7}});
  try {
    static_cast<void>(make_model(config));
    FAIL() << "was taken";
  } catch (const UserError& error) {
    EXPECT_THAT(error.faults(),
                testing::ElementsAre("model.late.key_dim: expected an even number, got 7"));
  }
}

}  // namespace
}  // namespace transnormer::test
