#include "config/idle.h"

#include "config/support.h"

namespace transnormer {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

std::vector<std::string> warnings_of(const std::string& json, const Sets& sets = {}) {
  return parse_config(json, "x.json", sets).warnings;
}

TEST(IdleKeys, OfTheTokenizerAreToldBesideOneThatIsLoaded) {
  EXPECT_THAT(
      warnings_of("{\"tokenizer\":\n{\"path\": \"d.txt\",\n\"vocab_size\": 9}}"),
      ElementsAre("x.json:3: tokenizer.vocab_size: acts only where a tokenizer is made, and "
                  "tokenizer.path names one"));
  EXPECT_THAT(warnings_of("{}", {"train.init_from=run", "tokenizer.min_count=2"}),
              ElementsAre(HasSubstr("--set: tokenizer.min_count: acts only")));
  EXPECT_THAT(warnings_of("{}", {"tokenizer.vocab_size=9", "tokenizer.min_count=2"}), IsEmpty());
  EXPECT_THAT(warnings_of("{}", {"tokenizer.byte_fallback=false"}),
              ElementsAre(HasSubstr("only with tokenizer.type \"sentencepiece\"")));
}

TEST(IdleKeys, OfTheScheduleAreToldBesideAnother) {
  EXPECT_THAT(
      warnings_of("{}", {"schedule.power=2"}),
      ElementsAre(HasSubstr("schedule.power: acts only with schedule.name \"polynomial\"")));
  EXPECT_THAT(warnings_of("{}", {"schedule.decay_steps=20"}),
              ElementsAre(HasSubstr("acts only with schedule.name \"wsd\"")));
  EXPECT_THAT(warnings_of("{}", {"schedule.power=2", "schedule.name=polynomial"}), IsEmpty());
  EXPECT_THAT(warnings_of("{}", {"schedule.decay_steps=20", "schedule.name=wsd"}), IsEmpty());
}

TEST(IdleKeys, OfValidationAreToldWhereNothingIsHeldOut) {
  EXPECT_THAT(warnings_of("{}", {"validation.context_window=8"}),
              ElementsAre(HasSubstr("never acts without data.valid, data.holdout or data.test")));
  EXPECT_THAT(warnings_of("{}", {"validation.context_window=8", "data.test=t.txt"}), IsEmpty());
  EXPECT_THAT(warnings_of("{}", {"validation.every=8", "data.holdout=0.1", "data.train=t.txt"}),
              IsEmpty());
  EXPECT_THAT(
      warnings_of("{}", {"validation.max_tokens=8", "validation.every=0", "data.valid=v.txt"}),
      ElementsAre(HasSubstr("while validation.every is 0")));
  // The best are saved as well, and kept.
  EXPECT_THAT(warnings_of("{}", {"checkpoint.keep_every=8", "checkpoint.every=0"}), IsEmpty());
}

TEST(IdleKeys, OfDefaultsAndIncludedFilesAreNotTold) {
  EXPECT_THAT(warnings_of(R"({"schedule": {"power": 1}})"), IsEmpty());
  EXPECT_THAT(warnings_of(config_to_json(config_of("{}"))), IsEmpty());
  const TemporaryDirectory directory;
  directory.write("base.json", R"({"schedule": {"name": "polynomial", "power": 2}})");
  const auto file =
      directory.write("own.json", R"({"include": "base.json", "schedule": {"name": "cosine"}})");
  EXPECT_THAT(load_config(file).warnings, IsEmpty());
  EXPECT_THAT(load_config(file, {"schedule.power=3"}).warnings,
              ElementsAre(HasSubstr("schedule.power")));
}

}  // namespace
}  // namespace transnormer
