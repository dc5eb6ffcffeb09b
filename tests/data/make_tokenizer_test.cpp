#include "data/make_tokenizer.h"

#include "data/support.h"

namespace transnormer {
namespace {

using testing::HasSubstr;

class MakeTokenizer : public testing::Test {
 protected:
  MakeTokenizer() {
    test::put(dir_ / "train.txt", "b b a\nc c c\n");
    config_.data.train = {(dir_ / "train.txt").string()};
    config_.data.cache_dir = (dir_ / "cache").string();
    config_.tokenizer.pad_to_multiple = 1;
  }
  [[nodiscard]] std::shared_ptr<const Tokenizer> obtain() const {
    FileDigests digests(config_.data.cache_dir);
    return obtain_tokenizer(config_, digests, false);
  }
  [[nodiscard]] std::filesystem::path made_file() const {
    for (const auto& entry : std::filesystem::directory_iterator(dir_ / "cache")) {
      if (entry.path().extension() == ".txt") {
        return entry.path();
      }
    }
    return {};
  }

  test::TemporaryDirectory dir_;
  Config config_;
};

TEST_F(MakeTokenizer, CountsTheTrainingTextOnAnyNumberOfThreads) {
  std::string text;
  for (int i = 0; i < 200000; ++i) {
    text += "word" + std::to_string(i % 977 * (i % 3)) + (i % 10 == 0 ? "\n" : " ");
  }
  test::put(dir_ / "train.txt", text);
  config_.train.threads = 1;
  const std::string by_one = make_tokenizer(config_, false);
  config_.train.threads = 5;
  EXPECT_EQ(make_tokenizer(config_, false), by_one);
  EXPECT_EQ(by_one.substr(0, by_one.find('\n')), "word0 66803");
}

TEST_F(MakeTokenizer, IsKeptAndUsedAgainForTheSameTextAndSettings) {
  EXPECT_EQ(obtain()->serialized(), "c 3\nb 2\na 1\n");
  const auto before = identify(made_file());
  EXPECT_EQ(obtain()->serialized(), "c 3\nb 2\na 1\n");
  EXPECT_EQ(identify(made_file()), before);
}

TEST_F(MakeTokenizer, IsMadeAnewForOtherTextOrSettings) {
  EXPECT_EQ(obtain()->size(), 7);
  config_.tokenizer.min_count = 2;
  EXPECT_EQ(obtain()->serialized(), "c 3\nb 2\n");
  test::put(dir_ / "train.txt", "d d\n");
  EXPECT_EQ(obtain()->serialized(), "d 2\n");
}

TEST_F(MakeTokenizer, IsMadeAgainWhereTheKeptOneIsDamaged) {
  static_cast<void>(obtain());
  test::flip_bit(made_file(), 2);
  EXPECT_EQ(obtain()->serialized(), "c 3\nb 2\na 1\n");
  EXPECT_EQ(read_file(made_file()), "c 3\nb 2\na 1\n");
}

TEST_F(MakeTokenizer, IsRefusedOfATextThatChangesAfterItWasDigested) {
  const std::string fault = test::fault_while_locked(
      dir_ / "cache", [&] { static_cast<void>(obtain()); },
      [&] { test::put(dir_ / "train.txt", "another text\n"); });
  EXPECT_THAT(fault, testing::StartsWith("data.train: "));
  EXPECT_THAT(fault, HasSubstr("train.txt changed while it was read; run again"));
  EXPECT_EQ(made_file(), "");
}

TEST_F(MakeTokenizer, CountsOnlySampledLinesWhereAsked) {
  std::string text;
  for (int i = 0; i < 1000; ++i) {
    text += "w" + std::to_string(i) + "\n\n";
  }
  test::put(dir_ / "train.txt", text);
  config_.tokenizer.sample_lines = 100;
  const auto sampled = obtain();
  EXPECT_EQ(sampled->size(), 4 + 100);
  // From the whole text, not its beginning.
  int late = 0;
  for (TokenId id = 4; id < 104; ++id) {
    const std::string word = sampled->decode(std::vector{id});
    late += static_cast<int>(std::stoi(word.substr(1)) >= 500);
  }
  EXPECT_GT(late, 25);
  EXPECT_LT(late, 75);
}

TEST_F(MakeTokenizer, RefusesAFileOfTheOtherType) {
  test::put(dir_ / "dict.txt", "a 1\n");
  config_.tokenizer.path = (dir_ / "dict.txt").string();
  EXPECT_EQ(obtain()->size(), 5);
  config_.tokenizer.type = TokenizerType::sentencepiece;
  EXPECT_THAT(test::fault_of([&] { static_cast<void>(obtain()); }),
              HasSubstr("dict.txt is a word dictionary, but tokenizer.type is \"sentencepiece\""));
}

TEST_F(MakeTokenizer, LoadsBytePairsAndMakesNone) {
  config_.tokenizer.type = TokenizerType::bpe;
  EXPECT_THAT(test::fault_of([&] { static_cast<void>(obtain()); }),
              HasSubstr("tokenizer.path: is empty, and \"bpe\" needs a vocabulary, which is not "
                        "trained here; GPT-2's is fetched by scripts/get_gpt2_bpe.sh"));
  EXPECT_THAT(test::fault_of([&] { static_cast<void>(make_tokenizer(config_, false)); }),
              HasSubstr("tokenizer.type: \"bpe\" is not trained by this program"));
  config_.tokenizer.path = TRANSNORMER_SOURCE_DIR "/tests/tokenizer/bpe";
  EXPECT_EQ(obtain()->size(), 757);
  config_.tokenizer.type = TokenizerType::word;
  EXPECT_THAT(test::fault_of([&] { static_cast<void>(obtain()); }),
              HasSubstr("is a byte-level BPE vocabulary, but tokenizer.type is \"word\"; set it to "
                        "\"bpe\""));
  EXPECT_FALSE(std::filesystem::exists(dir_ / "cache"));
}

TEST_F(MakeTokenizer, NeedsATextToMakeItFrom) {
  config_.data.train.clear();
  EXPECT_THAT(test::fault_of([&] { static_cast<void>(obtain()); }),
              HasSubstr("tokenizer.path: is empty"));
  test::put(dir_ / "train.txt", "\n  \n");
  config_.data.train = {(dir_ / "train.txt").string()};
  EXPECT_THAT(test::fault_of([&] { static_cast<void>(obtain()); }), HasSubstr("is empty"));
}

TEST_F(MakeTokenizer, TrainsASentencePieceModelFromTheText) {
  std::string text;
  for (int i = 0; i < 300; ++i) {
    text += "the ri" + std::to_string(i * 37 % 101) + "ver  ran\n";
  }
  test::put(dir_ / "train.txt", text);
  config_.tokenizer.type = TokenizerType::sentencepiece;
  config_.tokenizer.vocab_size = 280;
  const auto tokenizer = obtain();
  EXPECT_EQ(tokenizer->size(), 280);
  EXPECT_EQ(tokenizer->file_name(), "tokenizer.model");
  EXPECT_EQ(obtain()->digest(), tokenizer->digest());
}

}  // namespace
}  // namespace transnormer
