#include "checkpoint/load_by_name.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include "checkpoint/fixture.h"
#include "model/model_size.h"
#include "util/temporary_directory.h"

namespace transnormer {
namespace {

using test::TinyTraining;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::StartsWith;

// A real checkpoint of a training with `saved` changed, loaded into a model with `here` changed.
class LoadByName : public ::testing::Test {
 protected:
  using Change = std::function<void(ModelConfig&)>;

  // The model of another seed, so that what was not taken shows.
  void load(const Change& saved, const Change& here) {
    before_ = make(saved, 1);
    model_ = make(here, 2);
    untouched_ = make(here, 2);
    TinyTraining training;
    training.state.step = 1;
    saved(training.config.model);
    const auto path =
        save_checkpoint(directory_.path(), {.config = training.config,
                                            .model = named_tensors(*before_),
                                            .optimizer = training.optimizer->named_state(),
                                            .state = training.state,
                                            .tokenizer = *training.tokenizer,
                                            .unigram_counts = training.unigram_counts});
    report_ = Checkpoint::open(path).load_common_into(*model_);
    check_that_the_report_is_true();
  }

  LoadReport report_;

 private:
  static std::shared_ptr<TransNormer> make(const Change& change, std::uint64_t seed) {
    const TinyTraining training;
    Config config = training.config;
    change(config.model);
    auto model = std::make_shared<TransNormer>(
        config.model, model_size(config, training.tokenizer.get()), at::kCPU);
    initialize(*model, seed);
    return model;
  }

  static at::Tensor find(const TransNormer& model, const std::string& name) {
    for (const NamedTensor& named : named_tensors(model)) {
      if (named.name == name) {
        return named.tensor.detach();
      }
    }
    return {};
  }

  void check_that_the_report_is_true() {
    for (const std::string& name : report_.taken) {
      EXPECT_TRUE(at::equal(find(*model_, name), find(*before_, name))) << name;
    }
    std::vector<std::string> kept = report_.fresh;
    for (const ResizedTensor& tensor : report_.resized) {
      kept.push_back(tensor.name);
      EXPECT_EQ(at::IntArrayRef(tensor.here), find(*model_, tensor.name).sizes());
      EXPECT_EQ(at::IntArrayRef(tensor.saved), find(*before_, tensor.name).sizes());
    }
    for (const std::string& name : kept) {
      EXPECT_TRUE(at::equal(find(*model_, name), find(*untouched_, name))) << name;
    }
    EXPECT_EQ(report_.taken.size() + kept.size(), named_tensors(*model_).size());
    EXPECT_EQ(report_.taken.size() + report_.left.size() + report_.resized.size(),
              named_tensors(*before_).size());
    for (const std::string& name : report_.left) {
      EXPECT_FALSE(find(*model_, name).defined()) << name;
    }
  }

  test::TemporaryDirectory directory_;
  std::shared_ptr<TransNormer> before_;
  std::shared_ptr<TransNormer> model_;
  std::shared_ptr<TransNormer> untouched_;
};

void as_it_is(ModelConfig&) {}

TEST_F(LoadByName, TakesAllOfAnEqualModelTheFrozenTensorsToo) {
  load(as_it_is, as_it_is);
  EXPECT_THAT(report_.fresh, IsEmpty());
  EXPECT_THAT(report_.left, IsEmpty());
  EXPECT_THAT(report_.resized, IsEmpty());
  EXPECT_THAT(report_.taken, Contains("layers.1.attn.lrpe.reflect"));
  EXPECT_THAT(report_.lines(), ElementsAre(StartsWith("taken: ")));
}

TEST_F(LoadByName, GivesTheBodyToAModelWithAnOutputLayerOfItsOwn) {
  load(as_it_is, [](ModelConfig& model) { model.tie_embeddings = false; });
  EXPECT_THAT(report_.fresh, ElementsAre("output.weight"));
  EXPECT_THAT(report_.left, IsEmpty());
  EXPECT_THAT(report_.lines(), Contains("new, not in the checkpoint: 1 tensor: output.weight"));
}

TEST_F(LoadByName, LeavesAnOutputLayerThatHasNoPlace) {
  load([](ModelConfig& model) { model.tie_embeddings = false; }, as_it_is);
  EXPECT_THAT(report_.fresh, IsEmpty());
  EXPECT_THAT(report_.left, ElementsAre("output.weight"));
  EXPECT_THAT(report_.lines(),
              Contains("left, without a place in this model: 1 tensor: output.weight"));
}

TEST_F(LoadByName, TellsTheSizesOfAVocabularyThatDiffers) {
  load(as_it_is, [](ModelConfig& model) { model.vocab_size = 12; });
  ASSERT_EQ(report_.resized.size(), 1U);
  EXPECT_EQ(report_.resized[0].name, "embed.weight");
  EXPECT_THAT(report_.taken, Not(Contains("embed.weight")));
  EXPECT_THAT(report_.lines(),
              Contains("new, of other sizes than in the checkpoint: 1 tensor: embed.weight "
                       "([8, 8] there, [12, 8] here)"));
}

TEST_F(LoadByName, TakesTheLayersThatThereAreAndNamesTheNewOnes) {
  const auto third = [](ModelConfig& model) {
    model.early_layers = 1;
    model.layers = 3;
  };
  load(as_it_is, third);
  EXPECT_THAT(report_.taken, Contains("layers.1.ffn.down_proj.weight"));
  EXPECT_THAT(report_.fresh, Not(IsEmpty()));
  EXPECT_THAT(report_.fresh, Each(StartsWith("layers.2.")));
  EXPECT_THAT(report_.fresh, Contains("layers.2.attn.lrpe.reflect"));
  load(third, as_it_is);
  EXPECT_THAT(report_.left, Not(IsEmpty()));
  EXPECT_THAT(report_.left, Each(StartsWith("layers.2.")));
}

}  // namespace
}  // namespace transnormer
