// Long-short attention against plain loops in double.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <tuple>
#include <vector>

#include "model/attention/properties.h"
#include "model/attention/registry.h"
#include "model/models.h"
#include "model/weights.h"

namespace transnormer::test {
namespace {

constexpr std::int64_t kDim = 12, kHeads = 2, kHeadDim = 6;

struct Sizes {
  std::int64_t window;
  std::int64_t chunk;
  std::int64_t rank;
};

struct LongShort {
  LongShort(const Sizes& given, bool is_causal, double dropout = 0)
      : sizes(given),
        attention(make_attention(
            with_settings("transformer_ls",
                          {{"window", sizes.window}, {"chunk", sizes.chunk}, {"rank", sizes.rank}}),
            {.dim = kDim, .heads = kHeads, .dropout = dropout, .causal = is_causal})),
        causal(is_causal) {
    fill_parameters(*attention, 0.5);
    subject = {
        .module = attention,
        .forward =
            [this](const at::Tensor& x, const ForwardContext& context, AttentionState* state) {
              ForwardContext here = context;
              here.visibility.causal = causal;
              return attention->forward(x.to(context.compute), here, state);
            },
        .make_state = [this](std::int64_t batch) { return attention->make_state(batch); },
        .dim = kDim,
        .causal = is_causal};
  }
  LongShort(const LongShort&) = delete;
  Sizes sizes;
  std::shared_ptr<Attention> attention;
  bool causal;
  Subject subject;
};

at::Tensor sinusoid(std::int64_t distance) {
  std::vector<double> sin, cos;
  for (std::int64_t i = 0; i < kDim / 2; ++i) {
    const double angle =
        static_cast<double>(distance) * std::pow(1e4, -2.0 * static_cast<double>(i) / kDim);
    sin.push_back(std::sin(angle));
    cos.push_back(std::cos(angle));
  }
  sin.insert(sin.end(), cos.begin(), cos.end());
  return at::tensor(sin, at::kDouble);
}

Reference reference(const Sizes& sizes, bool causal) {
  const std::int64_t rank = sizes.rank > 0 ? sizes.rank : (causal ? 1 : 32);
  return [=](const at::Tensor& x, const std::map<std::string, at::Tensor>& p) {
    const auto linear = [&](const std::string& name, const at::Tensor& in) {
      return at::linear(in, p.at(name + ".weight"), p.at(name + ".bias"));
    };
    const auto norm = [&](const std::string& name, const at::Tensor& in) {
      return at::layer_norm(in, {kDim}, p.at(name + ".weight"), p.at(name + ".bias"), 1e-5);
    };
    const std::int64_t time = x.size(0);
    const at::Tensor q = linear("q_proj", x) / std::sqrt(static_cast<double>(kHeadDim));
    const at::Tensor k = linear("k_proj", x), v = linear("v_proj", x);
    const at::Tensor near_k = norm("window_norm", k), near_v = norm("window_norm", v);
    const at::Tensor logits = linear("compress_proj", x);
    // The summaries of tokens [first, first + count), each of all heads.
    const auto summary = [&](const at::Tensor& of, std::int64_t first, std::int64_t count,
                             std::int64_t r) {
      std::vector<at::Tensor> heads;
      for (std::int64_t h = 0; h < kHeads; ++h) {
        const at::Tensor weights =
            at::softmax(logits.narrow(0, first, count).select(1, h * rank + r), 0);
        at::Tensor sum = at::zeros({kHeadDim}, at::kDouble);
        for (std::int64_t t = 0; t < count; ++t) {
          sum = sum + weights[t] * of[first + t].narrow(0, h * kHeadDim, kHeadDim);
        }
        heads.push_back(sum);
      }
      return norm("summary_norm", at::cat(heads));
    };
    struct Seen {
      at::Tensor key, value, query_key, query_distance, distance;
    };
    // Made once: those of each chunk, or of the sequence.
    std::vector<Seen> summaries;
    const std::int64_t length = causal ? sizes.chunk : time;
    for (std::int64_t c = 0; c < time / length; ++c) {
      for (std::int64_t r = 0; r < rank; ++r) {
        summaries.push_back({summary(causal ? k : near_k, c * length, length, r),
                             summary(causal ? v : near_v, c * length, length, r),
                             {},
                             {},
                             {}});
      }
    }
    std::vector<at::Tensor> distances, chunk_distances;
    for (std::int64_t i = 0; causal && i < time; ++i) {
      distances.push_back(linear("distance_proj", sinusoid(i)));
      chunk_distances.push_back(linear("chunk_distance_proj", sinusoid(i)));
    }
    const auto at = [](std::int64_t i) { return static_cast<std::size_t>(i); };
    std::vector<at::Tensor> rows;
    for (std::int64_t t = 0; t < time; ++t) {
      // What t sees: key, value, and for distances their vector.
      std::vector<Seen> seen;
      if (causal) {
        const at::Tensor by_key = q[t] + p.at("key_bias");
        const at::Tensor by_distance = q[t] + p.at("distance_bias");
        for (std::int64_t j = std::max<std::int64_t>(0, t - sizes.window + 1); j <= t; ++j) {
          seen.push_back({near_k[j], near_v[j], by_key, by_distance, distances[at(t - j)]});
        }
        const std::int64_t own = t / sizes.chunk;
        for (std::int64_t i = 0; i < own * rank; ++i) {
          Seen one = summaries[at(i)];
          one.query_key = one.query_distance = q[t];
          one.distance = chunk_distances[at(own - 1 - i / rank)];
          seen.push_back(one);
        }
      } else {
        const std::int64_t group = t / sizes.window * sizes.window, side = sizes.window / 2;
        for (std::int64_t j = std::max<std::int64_t>(0, group - side);
             j < std::min(time, group + sizes.window + side); ++j) {
          seen.push_back({near_k[j], near_v[j], q[t], {}, {}});
        }
        for (Seen one : summaries) {
          one.query_key = q[t];
          seen.push_back(one);
        }
      }
      std::vector<at::Tensor> heads;
      for (std::int64_t h = 0; h < kHeads; ++h) {
        const auto own = [&](const at::Tensor& of) { return of.narrow(0, h * kHeadDim, kHeadDim); };
        std::vector<at::Tensor> scores, values;
        for (const Seen& s : seen) {
          at::Tensor score = at::dot(own(s.query_key), own(s.key));
          if (s.distance.defined()) {
            score = score + at::dot(own(s.query_distance), own(s.distance));
          }
          scores.push_back(score);
          values.push_back(own(s.value));
        }
        heads.push_back(at::matmul(at::softmax(at::stack(scores), 0), at::stack(values)));
      }
      rows.push_back(at::cat(heads));
    }
    return linear("out_proj", at::stack(rows));
  };
}

std::string name_of(const Sizes& sizes, bool causal) {
  return std::to_string(sizes.window) + " " + std::to_string(sizes.chunk) + " " +
         std::to_string(sizes.rank) + (causal ? ", causal" : ", bidirectional");
}

// Every size on either side of the others, and windows and chunks longer than the sequence.
const std::vector<Sizes> kAll{{5, 3, 0}, {4, 4, 2}, {3, 7, 1}, {64, 32, 0}, {1, 1, 3}};

TEST(LongShortAttention, IsTheFormula) {
  for (const Sizes& sizes : kAll) {
    for (const bool causal : {true, false}) {
      const LongShort made(sizes, causal);
      for (const std::int64_t time : {1, 13}) {
        expect_as_in_double(made.subject, reference(sizes, causal), time, 2e-5,
                            name_of(sizes, causal));
      }
    }
  }
}

TEST(LongShortAttention, NeverSeesTheFuture) {
  for (const Sizes& sizes : kAll) {
    expect_causal_to_the_bit(LongShort(sizes, true).subject, 17, name_of(sizes, true));
  }
}

TEST(LongShortAttention, SeesNeitherPaddingNorOtherSegments) {
  for (const Sizes& sizes : kAll) {
    for (const bool causal : {true, false}) {
      expect_padding_and_segments_unseen(LongShort(sizes, causal).subject, 11,
                                         name_of(sizes, causal));
    }
  }
}

TEST(LongShortAttention, DecodesAsItReadsWholeSequences) {
  for (const Sizes& sizes : kAll) {
    expect_decodes_as_whole(LongShort(sizes, true).subject, 23, name_of(sizes, true));
  }
}

TEST(LongShortAttention, IsCloseInHalfPrecisions) {
  for (const bool causal : {true, false}) {
    expect_close_in_half(LongShort({5, 3, 0}, causal).subject, 19, 0.05, 0.01, "transformer_ls");
  }
}

TEST(LongShortAttention, KeepsAWindowAChunkAndASummaryAChunk) {
  const at::NoGradGuard no_gradients;
  const LongShort made({5, 3, 0}, true);
  const auto bytes_after = [&](std::int64_t time) {
    const auto state = made.attention->make_state(1);
    static_cast<void>(made.attention->forward(waves({1, time, kDim}), {}, state.get()));
    return static_cast<double>(state->bytes());
  };
  const StateBytes told = made.attention->state_bytes(at::kFloat);
  // 128 chunks and two tokens of the next; what grows does so by doubling.
  const double needed = told.fixed + 384 * told.per_token;
  EXPECT_GE(bytes_after(386), needed);
  EXPECT_LT(bytes_after(386), 1.5 * needed);
  EXPECT_LT(bytes_after(386), 386 * 2 * kDim * 4);
}

// A summary's weight is shared out by the weights that made it, so that rows add up to one.
TEST(LongShortAttention, GivesWeightsThatAddUpToOne) {
  for (const bool causal : {true, false}) {
    const LongShort made({3, 4, 0}, causal);
    ForwardContext context;
    context.visibility.causal = causal;
    const at::Tensor weights = made.attention->weights(waves({2, 15, kDim}), context);
    ASSERT_EQ(weights.sizes(), at::IntArrayRef({2, kHeads, 15, 15}));
    EXPECT_LT((weights.sum(-1) - 1).abs().max().item<double>(), 1e-5);
    EXPECT_GE(weights.min().item<double>(), 0);
    if (causal) {
      EXPECT_EQ(weights.triu(1).max().item<double>(), 0);
      // Token 14's window is 12 to 14, its closed chunks end at 11; token 7's is 5 to 7, and 4 is
      // in its own chunk.
      EXPECT_GT(weights.select(2, 14).narrow(-1, 0, 12).min().item<double>(), 0);
      EXPECT_EQ(weights.select(2, 7).select(-1, 4).max().item<double>(), 0);
    }
  }
}

TEST(LongShortAttention, TakesQueriesFromElsewhere) {
  const at::NoGradGuard no_gradients;
  const LongShort made({5, 3, 0}, true);
  const at::Tensor x = waves({2, 13, kDim}), other = waves({2, 13, kDim}, 0.61);
  EXPECT_TRUE(at::equal(made.attention->forward_from(x.clone(), x, {}, nullptr),
                        made.attention->forward(x, {}, nullptr)));
  const at::Tensor mixed = made.attention->forward_from(other, x, {}, nullptr);
  EXPECT_GT(relative_error(mixed, made.attention->forward(x, {}, nullptr)), 1e-3);
  EXPECT_GT(relative_error(mixed, made.attention->forward(other, {}, nullptr)), 1e-3);
}

// Dropout's masks are those of the real tokens, and on average it changes nothing.
TEST(LongShortAttention, DropsWeightsWhateverThePadding) {
  const at::NoGradGuard no_gradients;
  for (const bool causal : {true, false}) {
    const LongShort made({5, 3, 0}, causal, 0.3);
    const at::Tensor x = waves({1, 11, kDim});
    ForwardContext context{.training = true, .seed = 3};
    const at::Tensor plain = made.subject.forward(x, context, nullptr);
    EXPECT_GT(relative_error(plain, made.subject.forward(x, {}, nullptr)), 1e-2);
    ForwardContext padded = context;
    padded.visibility.padding = (at::arange(15) < 4).view({1, 15});
    const at::Tensor found =
        made.subject.forward(at::cat({at::ones({1, 4, kDim}), x}, 1), padded, nullptr);
    EXPECT_LT(relative_error(found.narrow(1, 4, 11), plain), 1e-5);
    at::Tensor sum = at::zeros_like(plain);
    for (int i = 0; i < 150; ++i) {
      context.update = i;
      sum += made.subject.forward(x, context, nullptr);
    }
    EXPECT_LT(relative_error(sum / 150, made.subject.forward(x, {}, nullptr)), 0.25);
  }
}

std::int64_t parameters_of(bool causal, std::int64_t dim, std::int64_t heads) {
  const auto attention = make_attention(
      "transformer_ls", {.dim = dim, .heads = heads, .causal = causal, .device = at::kMeta});
  std::int64_t count = 0;
  for (const at::Tensor& parameter : attention->parameters()) {
    count += parameter.numel();
  }
  return count;
}

TEST(LongShortAttention, HasThePublishedNumberOfParameters) {
  // A layer's 3,684,872 without its feed-forward part and its two LayerNorms.
  EXPECT_EQ(parameters_of(true, 512, 8), 3'684'872 - 2'099'712 - 4 * 512);
  // Bidirectional: softmax's four products, d -> 32 a head, two LayerNorms.
  EXPECT_EQ(parameters_of(false, 768, 12), 4 * (768 * 768 + 768) + 32 * 12 * 769 + 4 * 768);
}

TEST(LongShortAttention, StartsAsPublished) {
  ModelConfig config = small_config(ModelVariant::t2);
  config.variant = ModelVariant::custom;
  config.late = "transformer_ls";
  config.early_layers = 0;
  const auto model = make_model(config);
  int looked_at = 0;
  for (const NamedTensor& named : named_tensors(*model)) {
    if (named.name.find(".attn.") == std::string::npos) {
      continue;
    }
    ++looked_at;
    const auto is = [&](const char* end) { return named.name.ends_with(end); };
    if (is("norm.weight")) {
      EXPECT_NEAR(named.tensor.mean().item<double>(), 1, 0.02) << named.name;
      EXPECT_NEAR(named.tensor.std().item<double>(), 0.02, 0.01) << named.name;
    } else if (is(".bias")) {
      EXPECT_EQ(named.tensor.abs().max().item<double>(), 0) << named.name;
    } else {
      EXPECT_NEAR(named.tensor.std().item<double>(), 0.02, 0.01) << named.name;
    }
  }
  EXPECT_EQ(looked_at, 3 * 20);
}

}  // namespace
}  // namespace transnormer::test
