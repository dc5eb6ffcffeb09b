// Attention in hash buckets against plain loops in double.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
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
  std::int64_t chunk;
  std::int64_t hashes;
  std::int64_t positions;
};

// 2^floor(log2(2 positions / chunk)), at least 2.
std::int64_t buckets_of(const Sizes& sizes) {
  std::int64_t count = 2;
  while (2 * count * sizes.chunk <= 2 * sizes.positions) {
    count *= 2;
  }
  return count;
}

struct Hashing {
  Hashing(const Sizes& given, bool is_causal)
      : sizes(given),
        attention(make_attention(
            with_settings("reformer", {{"chunk", sizes.chunk}, {"hashes", sizes.hashes}}),
            {.dim = kDim, .heads = kHeads, .causal = is_causal, .max_positions = sizes.positions})),
        causal(is_causal) {
    dynamic_cast<Initializable&>(*attention).initialize(Initializer(9), "attn.");
    fill_parameters(*attention, 0.6);
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
  Hashing(const Hashing&) = delete;
  [[nodiscard]] at::Tensor features() const { return attention->named_buffers()["features"]; }
  Sizes sizes;
  std::shared_ptr<Attention> attention;
  bool causal;
  Subject subject;
};

std::int64_t bucket_of(const at::Tensor& q, const at::Tensor& rotations) {
  const at::Tensor along = at::matmul(rotations, q);
  return at::cat({along, -along}).argmax().item<std::int64_t>();
}

std::vector<std::int64_t> ordered(const std::vector<std::int64_t>& bucket) {
  std::vector<std::int64_t> order(bucket.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](std::int64_t a, std::int64_t b) {
    return bucket[static_cast<std::size_t>(a)] < bucket[static_cast<std::size_t>(b)];
  });
  return order;
}

// For each token those that it sees in a round beside itself; `former`: the buckets of the round
// before, in a circle.
std::vector<std::vector<std::int64_t>> seen_in_round(const std::vector<std::int64_t>& bucket,
                                                     const std::vector<std::int64_t>& former,
                                                     std::int64_t chunk, bool causal) {
  const auto time = static_cast<std::int64_t>(bucket.size());
  std::vector<std::vector<std::int64_t>> seen(bucket.size());
  const auto at = [](std::int64_t i) { return static_cast<std::size_t>(i); };
  if (causal) {
    for (std::int64_t t = 0; t < time; ++t) {
      for (std::int64_t s = t - 1; s >= 0 && std::ssize(seen[at(t)]) < chunk; --s) {
        if (bucket[at(s)] == bucket[at(t)]) {
          seen[at(t)].push_back(s);
        }
      }
    }
    return seen;
  }
  const std::vector<std::int64_t> order = ordered(bucket), order_before = ordered(former);
  const std::int64_t chunks = (time + chunk - 1) / chunk;
  for (std::int64_t i = 0; i < time; ++i) {
    const std::int64_t own = i / chunk;
    for (std::int64_t j = 0; j < time; ++j) {
      if (j != i && (j / chunk == own || (own > 0 && j / chunk == own - 1))) {
        seen[at(order[at(i)])].push_back(order[at(j)]);
      }
      const bool in_last = chunks > 1 && own == 0 && j / chunk == chunks - 1;
      if (in_last && order_before[at(j)] != order[at(i)]) {
        seen[at(order[at(i)])].push_back(order_before[at(j)]);
      }
    }
  }
  return seen;
}

Reference reference(const Hashing& made) {
  const at::Tensor features = made.features().to(at::kDouble);
  const Sizes sizes = made.sizes;
  const bool causal = made.causal;
  return [=](const at::Tensor& x, const std::map<std::string, at::Tensor>& p) {
    const std::int64_t time = x.size(0);
    const at::Tensor q = at::linear(x, p.at("q_proj.weight"));
    const at::Tensor v = at::linear(x, p.at("v_proj.weight"));
    const std::int64_t half = buckets_of(sizes) / 2;
    std::vector<at::Tensor> heads;
    for (std::int64_t h = 0; h < kHeads; ++h) {
      const at::Tensor query = q.narrow(1, h * kHeadDim, kHeadDim);
      const at::Tensor value = v.narrow(1, h * kHeadDim, kHeadDim);
      // Each round's own softmax, and the logarithm of its sum.
      std::vector<std::vector<at::Tensor>> outs(static_cast<std::size_t>(time)),
          sums(static_cast<std::size_t>(time));
      std::vector<std::vector<std::int64_t>> buckets(static_cast<std::size_t>(sizes.hashes));
      for (std::int64_t round = 0; round < sizes.hashes; ++round) {
        for (std::int64_t t = 0; t < time; ++t) {
          buckets[static_cast<std::size_t>(round)].push_back(
              bucket_of(query[t].detach(), features[h].narrow(0, round * half, half)));
        }
      }
      for (std::size_t round = 0; round < buckets.size(); ++round) {
        const auto seen =
            seen_in_round(buckets[round], buckets[(round + buckets.size() - 1) % buckets.size()],
                          sizes.chunk, causal);
        for (std::int64_t t = 0; t < time; ++t) {
          const auto& others = seen[static_cast<std::size_t>(t)];
          std::vector<at::Tensor> scores{at::full({}, -1e5, at::kDouble)}, values{value[t]};
          for (const std::int64_t s : others) {
            const at::Tensor norm =
                at::sqrt(query[s].square().sum() + static_cast<double>(kHeadDim) * 1e-6);
            scores.push_back(at::dot(query[t], query[s]) / norm);
            values.push_back(value[s]);
          }
          const at::Tensor all = at::stack(scores);
          outs[static_cast<std::size_t>(t)].push_back(
              at::matmul(at::softmax(all, 0), at::stack(values)));
          sums[static_cast<std::size_t>(t)].push_back(at::logsumexp(all, {0}));
        }
      }
      std::vector<at::Tensor> rows;
      for (std::size_t t = 0; t < outs.size(); ++t) {
        rows.push_back(at::matmul(at::softmax(at::stack(sums[t]), 0), at::stack(outs[t])));
      }
      heads.push_back(at::stack(rows));
    }
    return at::linear(at::cat(heads, 1), p.at("out_proj.weight"), p.at("out_proj.bias"));
  };
}

std::string name_of(const Sizes& sizes, bool causal) {
  return std::to_string(sizes.chunk) + " " + std::to_string(sizes.hashes) + " " +
         std::to_string(sizes.positions) + (causal ? ", causal" : ", bidirectional");
}

// Buckets that are fuller and emptier than a chunk; chunks of one token, odd ones, and one that
// holds all; one round and several.
const std::vector<Sizes> kAll{{4, 2, 16}, {3, 3, 3}, {5, 1, 64}, {64, 2, 16}, {1, 2, 4}};

TEST(HashedAttention, IsTheFormula) {
  for (const Sizes& sizes : kAll) {
    for (const bool causal : {true, false}) {
      const Hashing made(sizes, causal);
      for (const std::int64_t time : {1, 2, 23}) {
        expect_as_in_double(made.subject, reference(made), time, 2e-5, name_of(sizes, causal));
      }
    }
  }
}

// More blocks than are worked on at a time, which no row of its own has.
TEST(HashedAttention, IsTheSameInManyTilesAsInOne) {
  for (const bool causal : {true, false}) {
    const Hashing made({32, 2, 128}, causal);
    const at::Tensor x = waves({60, 200, kDim}).requires_grad_();
    const at::Tensor weights = waves({60, 200, kDim}, 0.91);
    const at::Tensor y = made.subject.forward(x, {}, nullptr);
    (y * weights).sum().backward();
    for (const std::int64_t row : {0, 31, 59}) {
      const at::Tensor own = x.detach().narrow(0, row, 1).clone().requires_grad_();
      const at::Tensor alone = made.subject.forward(own, {}, nullptr);
      EXPECT_LT(relative_error(y[row].detach(), alone[0].detach()), 1e-5) << row;
      (alone * weights.narrow(0, row, 1)).sum().backward();
      EXPECT_LT(relative_error(x.grad()[row], own.grad()[0]), 1e-4) << row;
    }
  }
}

TEST(HashedAttention, NeverSeesTheFuture) {
  for (const Sizes& sizes : kAll) {
    const Hashing made(sizes, true);
    // A token that is alone in its buckets takes itself, any other only others.
    const at::NoGradGuard no_gradients;
    const at::Tensor x = waves({2, 23, kDim});
    const at::Tensor before = made.subject.forward(x, {}, nullptr);
    for (std::int64_t t = 0; t < 23; ++t) {
      at::Tensor other = x.clone();
      other.narrow(1, t, 23 - t).mul_(-1.7).add_(0.3);
      const at::Tensor after = made.subject.forward(other, {}, nullptr);
      EXPECT_TRUE(at::equal(after.narrow(1, 0, t), before.narrow(1, 0, t)))
          << name_of(sizes, true) << ", " << t;
      EXPECT_FALSE(at::equal(after.narrow(1, t, 23 - t), before.narrow(1, t, 23 - t))) << t;
    }
  }
}

TEST(HashedAttention, SeesNeitherPaddingNorOtherSegments) {
  for (const Sizes& sizes : kAll) {
    for (const bool causal : {true, false}) {
      expect_padding_and_segments_unseen(Hashing(sizes, causal).subject, 13,
                                         name_of(sizes, causal));
    }
  }
}

TEST(HashedAttention, DecodesAsItReadsWholeSequences) {
  for (const Sizes& sizes : kAll) {
    expect_decodes_as_whole(Hashing(sizes, true).subject, 23, name_of(sizes, true));
  }
  expect_decodes_as_whole(Hashing({8, 2, 64}, true).subject, 150, "more than at once");
}

// The buckets of bf16 inputs may be others than those of fp32 where two directions are about as
// near; with one chunk for all, only rounding remains.
TEST(HashedAttention, IsCloseInHalfPrecisions) {
  for (const bool causal : {true, false}) {
    expect_close_in_half(Hashing({64, 2, 64}, false).subject, 19, 0.05, 0.01, "reformer");
    const Hashing made({4, 2, 16}, causal);
    const at::Tensor x = waves({2, 19, kDim});
    const at::Tensor y = made.subject.forward(x, {.compute = at::kBFloat16}, nullptr);
    EXPECT_EQ(y.scalar_type(), at::kBFloat16);
    const at::Tensor apart =
        (y.to(at::kFloat) - made.subject.forward(x, {}, nullptr)).abs().amax(-1);
    EXPECT_LT(apart.median().item<double>(), 0.1);
  }
}

TEST(HashedAttention, DrawsTheSameBucketsForTheSameUpdate) {
  const at::NoGradGuard no_gradients;
  const Hashing made({4, 2, 16}, true);
  const Hashing another({4, 2, 16}, true);
  const at::Tensor x = waves({3, 23, kDim});
  const ForwardContext first{.training = true, .seed = 7, .update = 1};
  const ForwardContext second{.training = true, .seed = 7, .update = 2};
  const at::Tensor y = made.subject.forward(x, first, nullptr);
  EXPECT_FALSE(at::equal(made.subject.forward(x, second, nullptr), y));
  EXPECT_TRUE(at::equal(made.subject.forward(x, first, nullptr), y));
  // On another rank, and whatever else is in the batch.
  EXPECT_TRUE(at::equal(another.subject.forward(x, first, nullptr), y));
  EXPECT_LT(relative_error(another.subject.forward(x.narrow(0, 2, 1), first, nullptr)[0], y[2]),
            1e-6);
  // Evaluation has a set of its own, whatever the update.
  const ForwardContext evaluation{.seed = 7, .update = 1};
  EXPECT_FALSE(at::equal(made.subject.forward(x, evaluation, nullptr), y));
  EXPECT_TRUE(at::equal(made.subject.forward(x, evaluation, nullptr),
                        made.subject.forward(x, {}, nullptr)));
  EXPECT_FALSE(made.attention->can_be_captured());
}

TEST(HashedAttention, GivesWeightsThatAddUpToOne) {
  for (const bool causal : {true, false}) {
    const Hashing made({4, 2, 16}, causal);
    ForwardContext context;
    context.visibility.causal = causal;
    const at::Tensor weights = made.attention->weights(waves({2, 15, kDim}), context);
    ASSERT_EQ(weights.sizes(), at::IntArrayRef({2, kHeads, 15, 15}));
    EXPECT_LT((weights.sum(-1) - 1).abs().max().item<double>(), 1e-5);
    // The first token sees itself alone, which no other does that sees another.
    const at::Tensor itself = weights.diagonal(0, 2, 3);
    EXPECT_TRUE(at::all((itself < 1e-6).logical_or(itself > 1 - 1e-6)).item<bool>());
    if (causal) {
      EXPECT_EQ(weights.triu(1).max().item<double>(), 0);
      EXPECT_EQ(itself.select(-1, 0).min().item<double>(), 1);
    }
  }
}

TEST(HashedAttention, HasTheParametersOfSoftmaxAndAnEvenNumberOfBuckets) {
  const auto attention = make_attention(
      "reformer", {.dim = 512, .heads = 8, .max_positions = 2048, .device = at::kMeta});
  std::int64_t count = 0;
  for (const at::Tensor& parameter : attention->parameters()) {
    count += parameter.numel();
  }
  EXPECT_EQ(count, 4 * (512 * 512 + 512));
  // 2 hashes of 64 buckets, a direction and its opposite each.
  EXPECT_EQ(attention->named_buffers()["features"].sizes(), at::IntArrayRef({8, 2 * 32, 64}));
  EXPECT_EQ(Hashing({64, 3, 16}, true).features().size(1), 3);
}

TEST(HashedAttention, KeepsItsRotationsInTheModelWithoutCountingThem) {
  ModelConfig config = small_config(ModelVariant::t2);
  config.variant = ModelVariant::custom;
  config.late = "reformer";
  config.early_layers = 0;
  const auto model = make_model(config);
  int found = 0;
  for (const NamedTensor& named : named_tensors(*model)) {
    if (named.name.ends_with("attn.features")) {
      ++found;
      EXPECT_FALSE(named.counted);
      EXPECT_FALSE(named.trainable);
      EXPECT_GT(named.tensor.abs().max().item<double>(), 0);
    }
  }
  EXPECT_EQ(found, 3);
}

}  // namespace
}  // namespace transnormer::test
