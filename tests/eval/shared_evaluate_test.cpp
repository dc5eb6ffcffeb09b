// Evaluation by several processes against that of one.
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <thread>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <vector>

#include "dist/threads.h"
#include "eval/evaluate.h"
#include "model/attention/diag.h"
#include "model/weights.h"
#include "util/error.h"

namespace transnormer {
namespace {

constexpr std::int64_t kVocab = 29;
constexpr std::int64_t kWindow = 24;

std::shared_ptr<TransNormer> small_model() {
  at::set_num_threads(1);
  ModelConfig config;
  config.layers = 2;
  config.dim = 16;
  config.heads = 2;
  config.early = DiagAttentionConfig{.block = 4};
  auto model = std::make_shared<TransNormer>(config, ModelSize{kVocab, kWindow}, at::kCPU);
  initialize(*model, 3);
  return model;
}

TokenStream some_tokens(std::int64_t count) {
  std::vector<TokenId> tokens;
  for (std::int64_t i = 0; i < count; ++i) {
    tokens.push_back(static_cast<TokenId>((i * i * 7 + 3 * i) % kVocab));
  }
  return TokenStream(std::move(tokens));
}

struct Scored {
  EvaluateResult result;
  std::vector<float> losses;
  std::int64_t progress = 0;
};

Scored score(const TokenStream& stream, EvaluateOptions options) {
  Scored scored;
  options.window = kWindow;
  options.first_input = 2;
  options.on_tokens = [&scored](std::int64_t index, std::span<const float> nll) {
    ASSERT_EQ(index, std::ssize(scored.losses));
    scored.losses.insert(scored.losses.end(), nll.begin(), nll.end());
  };
  options.on_progress = [&scored](std::int64_t done) { scored.progress = done; };
  scored.result = evaluate(*small_model(), stream, options);
  return scored;
}

TEST(SharedEvaluate, BatchesThatAreSharedOutGiveTheBitsOfOneProcess) {
  for (const std::int64_t count : {1, 24, 25, 300}) {
    for (const std::int64_t context : {0, 7}) {
      const TokenStream stream = some_tokens(count);
      const EvaluateOptions options{.context_window = context, .batch_size = 2};
      const Scored one = score(stream, options);
      for (const int ranks : {2, 3}) {
        dist::with_group(ranks, [&](const dist::Group& group) {
          EvaluateOptions shared = options;
          shared.batches = group;
          const Scored found = score(stream, shared);
          EXPECT_EQ(found.losses, one.losses) << count << " tokens, rank " << group.rank();
          EXPECT_EQ(found.result.nll_sum, one.result.nll_sum);
          EXPECT_EQ(found.result.nll_square_sum, one.result.nll_square_sum);
          EXPECT_EQ(found.result.tokens, count);
          EXPECT_EQ(found.progress, count);
          EXPECT_TRUE(found.result.complete);
        });
      }
    }
  }
}

void expect_close(const Scored& found, const Scored& one) {
  EXPECT_EQ(found.result.tokens, one.result.tokens);
  EXPECT_EQ(found.progress, one.progress);
  EXPECT_NEAR(found.result.nll_sum, one.result.nll_sum, 1e-6 * one.result.nll_sum);
  ASSERT_EQ(found.losses.size(), one.losses.size());
  for (std::size_t i = 0; i < one.losses.size(); ++i) {
    ASSERT_NEAR(found.losses[i], one.losses[i], 1e-5) << i;
  }
}

TEST(SharedEvaluate, WindowsThatAreSharedGiveTheSameLosses) {
  for (const std::int64_t count : {1, 9, 24, 25, 130}) {
    for (const std::int64_t context : {0, 7, 23}) {
      const TokenStream stream = some_tokens(count);
      const EvaluateOptions options{.context_window = context, .batch_size = 3};
      const Scored one = score(stream, options);
      for (const int ranks : {2, 3}) {
        dist::with_group(ranks, [&](const dist::Group& group) {
          EvaluateOptions shared = options;
          shared.sequence = group;
          expect_close(score(stream, shared), one);
        });
      }
    }
  }
}

// Four processes, numbered batch rank first.
void with_grid(
    const std::function<void(const dist::Group& sequence, const dist::Group& batches)>& body) {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  const auto group_of = [&store](const std::string& name, int rank) {
    return dist::Group(rank, 2,
                       dist::gloo_engine(c10::make_intrusive<c10d::PrefixStore>(name, store), rank,
                                         2, "127.0.0.1", std::chrono::seconds(60)),
                       std::make_shared<dist::Progress>());
  };
  std::vector<std::thread> threads;
  for (int number = 0; number < 4; ++number) {
    threads.emplace_back([&, batch = number / 2, part = number % 2] {
      body(group_of("sequence " + std::to_string(batch), part),
           group_of("batches " + std::to_string(part), batch));
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
}

TEST(SharedEvaluate, ProcessesShareWindowsAndBatches) {
  const TokenStream stream = some_tokens(150);
  const Scored one = score(stream, {.context_window = 5, .batch_size = 2});
  with_grid([&](const dist::Group& sequence, const dist::Group& batches) {
    expect_close(
        score(stream,
              {.context_window = 5, .batch_size = 2, .sequence = sequence, .batches = batches}),
        one);
  });
}

TEST(SharedEvaluate, StopsOnAllWhereOneIsAsked) {
  const TokenStream stream = some_tokens(300);
  with_grid([&](const dist::Group& sequence, const dist::Group& batches) {
    int asked = 0;
    EvaluateOptions options{.batch_size = 2, .sequence = sequence, .batches = batches};
    if (sequence.rank() == 1 && batches.rank() == 0) {
      options.should_stop = [&asked] { return ++asked == 2; };
    }
    const Scored scored = score(stream, options);
    EXPECT_FALSE(scored.result.complete);
    EXPECT_EQ(scored.result.tokens, 2 * 2 * kWindow);
  });
}

TEST(SharedEvaluate, RefusesAWindowWithoutEqualParts) {
  dist::with_group(5, [](const dist::Group& group) {
    EXPECT_THROW((void)score(some_tokens(30), {.sequence = group}), UserError);
  });
}

}  // namespace
}  // namespace transnormer
