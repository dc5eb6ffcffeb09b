#include "config/check.h"

#include "config/support.h"

namespace transnormer {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

std::vector<std::string> warnings_of(const Sets& sets) {
  return parse_config("{}", "x.json", sets).warnings;
}

TEST(ConfigCheck, HeadsMustDivideTheWidth) {
  EXPECT_THAT(faults_of("{\"model\":\n{\"heads\": 7}}"),
              ElementsAre("x.json:2: model.heads: 7 does not divide model.dim 512; expected a "
                          "divisor of it"));
}

TEST(ConfigCheck, RotatedHeadsMustHaveAnEvenWidth) {
  EXPECT_THAT(faults_of("{}", {"model.dim=12", "model.heads=4"}),
              ElementsAre(HasSubstr("model.dim / model.heads is 3; expected an even number")));
  EXPECT_THAT(faults_of("{}", {"model.variant=custom", "model.lrpe=false", "model.dim=12",
                               "model.heads=4"}),
              IsEmpty());
}

TEST(ConfigCheck, SinusoidalPositionsNeedAnEvenWidthFromFour) {
  const Sets odd{"model.variant=transformer", "model.dim=9", "model.heads=3"};
  EXPECT_THAT(faults_of("{}", odd), ElementsAre(HasSubstr("9; expected an even number from 4")));
  EXPECT_THAT(faults_of(R"({"model": {"position": "learned"}})", odd), IsEmpty());
  EXPECT_THAT(faults_of("{}", {"model.dim=2", "model.heads=1"}),
              ElementsAre(HasSubstr("2; expected an even number from 4")));
}

TEST(ConfigCheck, EarlyLayersAreAmongTheLayers) {
  const std::string custom = R"({"model": {"variant": "custom", "layers": 4}})";
  EXPECT_THAT(faults_of(custom, {"model.early_layers=4"}), IsEmpty());
  EXPECT_THAT(faults_of(custom, {"model.early_layers=5"}),
              ElementsAre(HasSubstr("model.early_layers: 5; expected at most model.layers, 4")));
}

TEST(ConfigCheck, AModelThatIsNotCausalIsTaken) {
  EXPECT_THAT(faults_of("{}", {"model.causal=false"}), IsEmpty());
}

TEST(ConfigCheck, AMicroBatchIsPartOfTheBatch) {
  EXPECT_THAT(faults_of("{}", {"train.global_batch_size=8", "train.micro_batch_size=8"}),
              IsEmpty());
  EXPECT_THAT(faults_of("{}", {"train.global_batch_size=8", "train.micro_batch_size=3"}),
              IsEmpty());
  EXPECT_THAT(faults_of("{}", {"train.global_batch_size=8", "train.micro_batch_size=9"}),
              ElementsAre(HasSubstr(
                  "train.micro_batch_size: 9; expected at most train.global_batch_size")));
}

TEST(ConfigCheck, AbsurdSizesAreRefusedWithTheMemoryTheyWouldTake) {
  // 4 * 3 dim int(8/3 dim) bytes a layer, dim = 2^30: 32 EiB, and six layers of it
  EXPECT_THAT(faults_of("{}", {"model.dim=1073741824", "train.global_batch_size=1"}),
              ElementsAre(AllOf(HasSubstr("model.dim: the feed-forward parts and the embedding"),
                                HasSubstr("192.00 EiB of memory"))));
  EXPECT_THAT(faults_of("{}", {"data.tokens_per_sample=2147483647",
                               "train.micro_batch_size=100"
                               "",
                               "train.global_batch_size=2147483647"}),
              IsEmpty());
  EXPECT_THAT(
      faults_of("{}", {"data.tokens_per_sample=2147483647", "train.global_batch_size=2147483647"}),
      ElementsAre(HasSubstr("EiB of memory; expected a smaller tokens_per_sample")));
}

TEST(ConfigCheck, TheWindowIsLongerThanItsContext) {
  EXPECT_THAT(faults_of("{}", {"validation.context_window=511"}), IsEmpty());
  EXPECT_THAT(faults_of("{}", {"validation.context_window=512"}),
              ElementsAre(HasSubstr("512; expected less than data.tokens_per_sample, 512")));
}

TEST(ConfigCheck, PatienceNeedsValidations) {
  EXPECT_THAT(
      warnings_of({"validation.patience=3", "validation.every=0"}),
      ElementsAre(HasSubstr("validation.patience: never acts while validation.every is 0")));
  EXPECT_THAT(warnings_of({"validation.patience=3"}),
              ElementsAre(HasSubstr("never acts without data.valid")));
  EXPECT_THAT(warnings_of({"validation.patience=3", "data.valid=x"}), IsEmpty());
}

TEST(ConfigCheck, AHoldoutBesideAValidTextOrWithoutATrainingTextIsAWarning) {
  const Sets held_out{"data.train=x", "data.holdout=0.1", "validation.patience=3"};
  EXPECT_THAT(warnings_of(held_out), IsEmpty());
  Sets beside = held_out;
  beside.emplace_back("data.valid=y");
  EXPECT_THAT(warnings_of(beside),
              ElementsAre(HasSubstr("data.holdout: never acts beside data.valid")));
  EXPECT_THAT(warnings_of({"data.holdout=0.1"}),
              ElementsAre(HasSubstr("data.holdout: never acts without data.train")));
  EXPECT_EQ(faults_of("{}", {"data.holdout=1"}).size(), 1U);
}

TEST(ConfigCheck, AWarmUpBeyondTheEndIsAWarning) {
  EXPECT_THAT(warnings_of({"train.steps=100", "schedule.warmup_steps=101"}),
              ElementsAre(HasSubstr("schedule.warmup_steps: the warm-up of 101 updates")));
  EXPECT_THAT(warnings_of({"train.steps=100", "schedule.warmup_steps=100"}), IsEmpty());
  EXPECT_THAT(warnings_of({"train.steps=0"}), IsEmpty());
}

TEST(ConfigCheck, AFallAtTheEndThatBeginsWithinTheWarmUpIsAWarning) {
  const auto warned = [](const std::string& name, const std::string& warmup,
                         const std::string& decay) {
    return warnings_of({"train.steps=100", "schedule.name=" + name,
                        "schedule.warmup_steps=" + warmup, "schedule.decay_steps=" + decay});
  };
  EXPECT_THAT(warned("wsd", "30", "71"),
              ElementsAre(HasSubstr("schedule.decay_steps: the fall of 71 updates to the end at "
                                    "train.steps 100 begins before the warm-up of 30 ends")));
  EXPECT_THAT(warned("wsd", "30", "70"), IsEmpty());
  EXPECT_THAT(warned("wsd", "91", "0"), ElementsAre(HasSubstr("the fall of 10 updates")));
  EXPECT_THAT(warned("wsd", "90", "0"), IsEmpty());
  EXPECT_THAT(warned("cosine", "30", "71"), ElementsAre(HasSubstr("acts only with")));
  EXPECT_THAT(warned("wsd", "101", "0"), ElementsAre(HasSubstr("schedule.warmup_steps")));
}

TEST(ConfigCheck, TheLeastLearningRateIsAtMostThePeak) {
  EXPECT_THAT(faults_of("{}", {"schedule.min_lr=0.1"}),
              ElementsAre(HasSubstr("schedule.min_lr: larger than optimizer.lr")));
}

TEST(ConfigCheck, ATokenizerToMakeFitsTheModel) {
  EXPECT_THAT(faults_of("{}", {"tokenizer.vocab_size=4"}),
              ElementsAre(HasSubstr("4; expected 0 or at least 5")));
  const std::string model =
      R"({"model": {"vocab_size": 100}, "tokenizer": {"type": "sentencepiece"}})";
  EXPECT_THAT(faults_of(model, {"tokenizer.vocab_size=101"}),
              ElementsAre(HasSubstr("101; expected at most model.vocab_size, 100")));
  EXPECT_THAT(faults_of(model, {"tokenizer.vocab_size=101", "tokenizer.path=a.model"}), IsEmpty());
}

TEST(ConfigCheck, OnlyBytePairsKeepLineEnds) {
  const std::string keep = R"({"data": {"line_end": "keep"}})";
  EXPECT_THAT(faults_of(keep), ElementsAre("x.json:1: data.line_end: \"keep\" needs tokenizer.type "
                                           "\"bpe\"; expected \"eos\" or \"none\" with \"word\""));
  EXPECT_THAT(faults_of(keep, {"tokenizer.type=sentencepiece", "tokenizer.path=a.model"}),
              ElementsAre(HasSubstr("with \"sentencepiece\"")));
  EXPECT_THAT(faults_of(keep, {"tokenizer.type=bpe"}), IsEmpty());
}

TEST(ConfigCheck, DoesNotJudgeWhatIsFaultyByItself) {
  EXPECT_THAT(faults_of("{}", {"model.heads=7", "model.dim=x"}),
              ElementsAre(HasSubstr("model.dim: expected an integer")));
}

TEST(ConfigCheck, ReportsBesideTheFaultsOfSingleKeys) {
  EXPECT_THAT(faults_of("{}", {"model.heads=7", "train.steps=x"}),
              ElementsAre(HasSubstr("train.steps"), HasSubstr("7 does not divide")));
}

}  // namespace
}  // namespace transnormer
