#include "generate/generate.h"

#include <ATen/Parallel.h>
#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/types.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "model/attention/diag.h"
#include "model/attention/norm.h"
#include "model/repeatable_state.h"
#include "model/weights.h"
#include "util/error.h"

namespace transnormer {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

// Counts what is asked of LibTorch's allocator; installed before anything stands before it.
class CountingAllocator : public c10::Allocator {
 public:
  at::DataPtr allocate(std::size_t bytes) override {
    calls += bytes > 0 ? 1 : 0;
    return source_->allocate(bytes);
  }
  void copy_data(void* to, const void* from, std::size_t bytes) const override {
    source_->copy_data(to, from, bytes);
  }
  [[nodiscard]] at::DeleterFnPtr raw_deleter() const override { return source_->raw_deleter(); }

  std::int64_t calls = 0;

 private:
  c10::Allocator* source_ = c10::GetCPUAllocator();
};

CountingAllocator& counted() {
  static auto* const allocator = new CountingAllocator;
  return *allocator;
}

const bool installed = [] {
  c10::SetCPUAllocator(&counted());
  return true;
}();

constexpr std::int64_t kVocab = 37;
constexpr std::int64_t kTrainedLength = 16;

std::shared_ptr<TransNormer> small_model(AttentionConfig early, AttentionConfig late,
                                         PositionKind position = PositionKind::sinusoidal) {
  at::set_num_threads(1);  // more only wait for each other at this size
  ModelConfig config;
  config.variant = ModelVariant::custom;
  config.layers = 3;
  config.dim = 16;
  config.heads = 2;
  config.early = early;
  config.late = late;
  config.position = position;
  auto model = std::make_shared<TransNormer>(config, ModelSize{kVocab, kTrainedLength}, at::kCPU);
  initialize(*model, 5);
  return model;
}

std::vector<std::shared_ptr<TransNormer>> models() {
  return {
      small_model(DiagAttentionConfig{.block = 8}, NormAttentionConfig{}),
      small_model(
          DiagAttentionConfig{.score = ScoreKind::relu, .block = 8, .output_norm = NormKind::srms},
          NormAttentionConfig{.kernel = FeatureMap::elu}),
      small_model("softmax", "softmax"),
  };
}

const std::vector<TokenId> kInputs{2, 9, 4, 31, 7, 7, 20, 11, 3, 15, 30};

// Row t: what may follow the first t + 1 tokens, by one pass over all of them.
at::Tensor parallel_logits(TransNormer& model, const std::vector<TokenId>& tokens) {
  const at::NoGradGuard no_grad;
  const std::vector<std::int64_t> ids(tokens.begin(), tokens.end());
  return model.logits(model.forward(torch::tensor(ids).unsqueeze(0), {}), {})[0];
}

TEST(Generate, GreedyTokensAreTheMostLikelyOfTheParallelForm) {
  for (const auto& model : models()) {
    GenerateOptions options{.max_tokens = 60};
    options.sampling.temperature = 0;
    std::vector<TokenId> tokens = kInputs;
    const std::vector<TokenId> chosen = generate(*model, kInputs, options);
    ASSERT_EQ(chosen.size(), 60U);
    tokens.insert(tokens.end(), chosen.begin(), chosen.end());
    const at::Tensor logits = parallel_logits(*model, tokens);
    for (std::size_t i = 0; i < chosen.size(); ++i) {
      const at::Tensor row = logits[static_cast<std::int64_t>(kInputs.size() + i) - 1];
      ASSERT_GE(row[chosen[i]].item<float>(), row.max().item<float>() - 1e-5F) << "token " << i;
    }
  }
}

TEST(Generate, SampledTokensAreThoseOfTheParallelForm) {
  for (const auto& model : models()) {
    GenerateOptions options{.max_tokens = 40};
    options.sampling = {.temperature = 1.5, .top_k = 20, .seed = 11};
    std::vector<TokenId> tokens = kInputs;
    for (std::uint64_t i = 0; i < 40; ++i) {
      const at::Tensor row = parallel_logits(*model, tokens)[-1].contiguous();
      tokens.push_back(Sampler(options.sampling).sample({row.data_ptr<float>(), kVocab}, i));
    }
    const std::vector<TokenId> expected(tokens.begin() + std::ssize(kInputs), tokens.end());
    EXPECT_EQ(generate(*model, kInputs, options), expected);
  }
}

TEST(Generate, IsTheSameHoweverThePromptIsCut) {
  for (const auto& model : models()) {
    GenerateOptions options{.max_tokens = 30};
    const std::vector<TokenId> whole = generate(*model, kInputs, options);
    for (const std::int64_t chunk : {1, 3, 8, 10}) {
      options.prompt_chunk = chunk;
      EXPECT_EQ(generate(*model, kInputs, options), whole) << "chunks of " << chunk;
    }
  }
}

TEST(Generate, FollowsTheSeed) {
  const auto model = models().front();
  GenerateOptions options{.max_tokens = 30};
  const std::vector<TokenId> first = generate(*model, kInputs, options);
  EXPECT_EQ(generate(*model, kInputs, options), first);
  options.sampling.seed = 2;
  EXPECT_NE(generate(*model, kInputs, options), first);
}

TEST(Generate, TellsEachTokenAtOnceAndEndsWhenTold) {
  const auto model = models().front();
  std::vector<TokenId> told;
  GenerateOptions options{.max_tokens = 30};
  options.on_token = [&told](TokenId id) {
    told.push_back(id);
    return told.size() < 4;
  };
  const std::vector<TokenId> chosen = generate(*model, kInputs, options);
  EXPECT_EQ(chosen.size(), 4U);
  EXPECT_EQ(told, chosen);
}

TEST(Generate, AsksForNoMemoryForATokenOnceItIsWarm) {
  ASSERT_TRUE(installed);
  for (const at::ScalarType compute : {at::kFloat, at::kBFloat16}) {
    const auto model = small_model(DiagAttentionConfig{.block = 8}, NormAttentionConfig{});
    std::vector<std::int64_t> calls;
    GenerateOptions options{.max_tokens = 60};
    options.compute = compute;
    options.on_token = [&calls](TokenId) {
      calls.push_back(counted().calls);
      return true;
    };
    (void)generate(*model, kInputs, options);
    EXPECT_GT(calls.front(), 0);
    EXPECT_EQ(calls[59], calls[20]) << compute;
  }
}

TEST(Generate, MakesNothingWhenAskedForNothing) {
  EXPECT_THAT(generate(*models().front(), kInputs, {.max_tokens = 0}), IsEmpty());
}

TEST(Generate, KeepsNoMoreAfterManyTokens) {
  const auto model = models().front();
  ModelState state = model->make_state(1);
  const at::NoGradGuard no_grad;
  const auto most_over = [&](int steps) {
    std::int64_t most = 0;
    for (int i = 0; i < steps; ++i) {
      (void)model->forward(torch::tensor({{std::int64_t{i % kVocab}}}), {}, &state);
      most = std::max(most, state.bytes());
    }
    return most;
  };
  const std::int64_t early = most_over(32);
  EXPECT_GT(early, 0);
  EXPECT_EQ(most_over(200), early);
}

TEST(Generate, RefusesALengthPastALearnedTable) {
  const auto model =
      small_model(DiagAttentionConfig{.block = 8}, NormAttentionConfig{}, PositionKind::learned);
  const std::int64_t room = kTrainedLength - std::ssize(kInputs) + 1;
  EXPECT_EQ(std::ssize(generate(*model, kInputs, {.max_tokens = room})), room);
  EXPECT_THROW((void)generate(*model, kInputs, {.max_tokens = room + 1}), UserError);
}

// Of every attention that decodes, with a prompt that ends inside chunks, blocks and windows.
std::vector<std::shared_ptr<TransNormer>> decoding_models() {
  std::vector<std::shared_ptr<TransNormer>> all = models();
  for (const char* name : {"softmax", "rela", "linear", "taylor", "efficient", "performer", "rfa",
                           "cosformer", "sparse", "reformer", "transformer_ls", "mix"}) {
    all.push_back(small_model(name, name));
  }
  for (const char* name : {"flash", "flash_quad"}) {
    all.push_back(small_model(name, name));
  }
  return all;
}

TEST(Generate, ATextIsTheSameAmongManyAsAlone) {
  for (const auto& model : decoding_models()) {
    ASSERT_TRUE(can_repeat(model->make_state(1)));
    GenerateOptions options{.max_tokens = 20};
    options.sampling = {.temperature = 1.3, .seed = 4, .repetition_penalty = 1.2};
    const std::int64_t room = model->most_positions().value_or(1000) - 5;
    options.max_tokens = std::min(options.max_tokens, room);
    const std::vector<TokenId> inputs(kInputs.begin(), kInputs.begin() + 6);
    const auto many = generate_texts(*model, inputs, options, kTextsTogether + 3);
    ASSERT_EQ(std::ssize(many), kTextsTogether + 3);
    for (const std::int64_t number : {0, 1, 7, 15, 16, 18}) {
      GenerateOptions alone = options;
      alone.sampling.sample = static_cast<std::uint64_t>(number);
      EXPECT_EQ(many[static_cast<std::size_t>(number)], generate(*model, inputs, alone))
          << number << " of " << std::string(model->config().early.name());
    }
    EXPECT_NE(many[0], many[1]);
  }
}

TEST(Generate, ATextThatHasEndedLeavesTheOthersAsTheyAre) {
  const auto model = models().front();
  GenerateOptions options{.max_tokens = 25};
  const auto whole = generate_texts(*model, kInputs, options, 4);
  std::vector<std::vector<TokenId>> told(4);
  const auto cut =
      generate_texts(*model, kInputs, options, 4, [&told](std::int64_t text, TokenId id) {
        auto& tokens = told[static_cast<std::size_t>(text)];
        tokens.push_back(id);
        return text != 2 || tokens.size() < 5;
      });
  EXPECT_EQ(cut, told);
  EXPECT_EQ(cut[2], std::vector<TokenId>(whole[2].begin(), whole[2].begin() + 5));
  for (const std::size_t i : {0U, 1U, 3U}) {
    EXPECT_EQ(cut[i], whole[i]);
  }
}

TEST(Generate, NoTextBeginsOnceItShouldStop) {
  const auto model = models().front();
  GenerateOptions options{.max_tokens = 3};
  int asked = 0;
  options.should_stop = [&asked] { return ++asked > 1; };
  const auto texts = generate_texts(*model, kInputs, options, 3 * kTextsTogether);
  EXPECT_EQ(asked, 2);
  ASSERT_EQ(std::ssize(texts), 3 * kTextsTogether);
  for (std::int64_t i = 0; i < std::ssize(texts); ++i) {
    EXPECT_EQ(texts[static_cast<std::size_t>(i)].size(), i < kTextsTogether ? 3U : 0U) << i;
  }
}

TEST(Generate, TheRepetitionPenaltyIsThatOfAPlainLoop) {
  const auto model = models().front();
  GenerateOptions options{.max_tokens = 30};
  options.sampling = {.temperature = 0.9, .seed = 3, .repetition_penalty = 1.7};
  std::vector<TokenId> tokens = kInputs;
  for (std::uint64_t i = 0; i < 30; ++i) {
    at::Tensor row = parallel_logits(*model, tokens)[-1].contiguous();
    for (std::int64_t id = 0; id < kVocab; ++id) {
      // The first input is no part of the text.
      if (std::find(tokens.begin() + 1, tokens.end(), static_cast<TokenId>(id)) != tokens.end()) {
        float& logit = row.data_ptr<float>()[id];
        logit = logit > 0 ? logit / 1.7F : logit * 1.7F;
      }
    }
    tokens.push_back(Sampler(options.sampling).sample({row.data_ptr<float>(), kVocab}, i));
  }
  const std::vector<TokenId> expected(tokens.begin() + std::ssize(kInputs), tokens.end());
  EXPECT_EQ(generate(*model, kInputs, options), expected);
  options.sampling.repetition_penalty = 1;
  EXPECT_NE(generate(*model, kInputs, options), expected);
}

TEST(Generate, AContinuationIsWhatTheTokensAddToThePrompt) {
  const auto tokenizer = parse_tokenizer("a 9\nb 8\n", "dictionary");
  EXPECT_EQ(continuation(*tokenizer, std::vector<TokenId>{4, 5}, std::vector<TokenId>{4, 2, 5}),
            " a\nb");
  EXPECT_EQ(continuation(*tokenizer, {}, std::vector<TokenId>{5, 4}), "b a");
  // Rows that the tokenizer has no token for.
  EXPECT_EQ(continuation(*tokenizer, {}, std::vector<TokenId>{4, 1000}),
            continuation(*tokenizer, {}, std::vector<TokenId>{4, 3}));
}

class EncodePrompt : public testing::Test {
 protected:
  std::vector<TokenId> encode(std::string_view text, LineEnd line_end = LineEnd::eos) {
    DataConfig config;
    config.line_end = line_end;
    return encode_prompt(text, *tokenizer_, config);
  }
  // a 4, b 5; </s> 2, <unk> 3.
  std::shared_ptr<const Tokenizer> tokenizer_ = parse_tokenizer("a 9\nb 8\n", "dictionary");
};

TEST_F(EncodePrompt, EndsEachLineButTheOpenOne) {
  EXPECT_THAT(encode(""), IsEmpty());
  EXPECT_THAT(encode("a b"), ElementsAre(4, 5));
  EXPECT_THAT(encode("a b\n"), ElementsAre(4, 5, 2));
  EXPECT_THAT(encode("a\n\nb c"), ElementsAre(4, 2, 2, 5, 3));
}

TEST_F(EncodePrompt, AddsNoEndWhereLineEndsAreNotCoded) {
  EXPECT_THAT(encode("a\nb\n", LineEnd::none), ElementsAre(4, 5));
}

}  // namespace
}  // namespace transnormer
