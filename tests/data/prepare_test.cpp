#include "data/prepare.h"

#include <sys/wait.h>
#include <unistd.h>

#include <sstream>
#include <thread>

#include "data/cache_file.h"
#include "data/shared_data.h"
#include "data/support.h"
#include "util/compressed.h"

namespace transnormer {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::vector<TokenId> tokens_of(const TokenStream& stream) {
  std::vector<TokenId> tokens;
  for (std::int64_t i = 0; i < stream.size(); ++i) {
    tokens.push_back(stream[i]);
  }
  return tokens;
}

class Prepare : public testing::Test {
 protected:
  Prepare() {
    test::put(dir_ / "dict.txt", "the 3\ncat 2\nsat 1\n");
    test::put(dir_ / "train.txt", "the cat\n\n the  dog <unk>\nsat");
    config_.tokenizer.path = (dir_ / "dict.txt").string();
    config_.data.train = {(dir_ / "train.txt").string()};
    config_.data.cache_dir = (dir_ / "cache").string();
  }
  [[nodiscard]] PreparedData prepare() const { return prepare_data(config_, {.progress = false}); }
  [[nodiscard]] std::string fault() const {
    return test::fault_of([&] { static_cast<void>(prepare()); });
  }
  [[nodiscard]] std::filesystem::path cache_file() const {
    for (const auto& entry : std::filesystem::directory_iterator(dir_ / "cache")) {
      if (entry.path().extension() == ".tokens") {
        return entry.path();
      }
    }
    return {};
  }

  test::TemporaryDirectory dir_;
  Config config_;
};

const std::vector<TokenId> kTokens{4, 5, 2, 2, 4, 3, 3, 2, 6, 2};

TEST_F(Prepare, CodesLinesWithAnEndTokenEachAndCounts) {
  const PreparedData data = prepare();
  const PreparedSplit& split = data.at(Split::train);
  EXPECT_EQ(tokens_of(split.stream), kTokens);
  EXPECT_EQ(split.counts, (SplitCounts{.tokens = 10,
                                       .types = 5,
                                       .unknown = 2,
                                       .lines = 4,
                                       .bytes = 28,
                                       .words = 6,
                                       .unreadable = Unreadable::unknown_tokens,
                                       .common_unknown = {{"<unk>", 1}, {"dog", 1}}}));
  EXPECT_EQ(split.stream.digest(), TokenStream(kTokens).digest());
  EXPECT_FALSE(data.find(Split::valid).has_value());
  EXPECT_THAT(test::fault_of([&] { static_cast<void>(data.at(Split::test)); }),
              HasSubstr("data.test: is not set"));
}

TEST_F(Prepare, LeavesLineEndsOutWhereAsked) {
  config_.data.line_end = LineEnd::none;
  EXPECT_THAT(tokens_of(prepare().at(Split::train).stream), ElementsAre(4, 5, 4, 3, 3, 6));
}

TEST_F(Prepare, GivesTheSameStreamOnAnyNumberOfThreads) {
  std::string text;
  for (int i = 0; i < 300000; ++i) {
    text += (i % 3 == 0 ? "the " : "cat ") + std::string(i % 17 == 0 ? "\n" : "");
  }
  test::put(dir_ / "train.txt", text);
  config_.train.threads = 1;
  const PreparedSplit by_one = prepare().at(Split::train);
  config_.train.threads = 4;
  config_.data.cache_dir = (dir_ / "other").string();
  const PreparedSplit by_four = prepare().at(Split::train);
  EXPECT_EQ(by_four.stream.digest(), by_one.stream.digest());
  EXPECT_EQ(by_four.counts, by_one.counts);
  EXPECT_EQ(by_one.counts.words, 300000);
}

TEST_F(Prepare, JoinsFilesAndEndsTheLastLineOfEach) {
  test::put(dir_ / "b.txt", "cat");
  test::put(dir_ / "c.txt", "sat\n");
  config_.data.train = {(dir_ / "[bc].txt").string(), (dir_ / "b.txt").string()};
  EXPECT_THAT(tokens_of(prepare().at(Split::train).stream), ElementsAre(5, 2, 6, 2, 5, 2));
}

TEST_F(Prepare, UsesACacheAgainAndTellsSo) {
  EXPECT_GT(prepare().at(Split::train).seconds, 0);
  const FileIdentity before = identify(cache_file());
  const PreparedData again = prepare();
  EXPECT_EQ(again.at(Split::train).seconds, 0);
  EXPECT_EQ(again.at(Split::train).counts.tokens, 10);
  EXPECT_EQ(identify(cache_file()), before);
}

TEST_F(Prepare, WorksFromAReadyCacheThatCannotBeWritten) {
  static_cast<void>(prepare());
  std::filesystem::remove(dir_ / "cache" / "lock");
  std::filesystem::permissions(dir_ / "cache", std::filesystem::perms{0555});
  EXPECT_EQ(tokens_of(prepare().at(Split::train).stream), kTokens);
  EXPECT_FALSE(std::filesystem::exists(dir_ / "cache" / "lock"));
  std::filesystem::permissions(dir_ / "cache", std::filesystem::perms{0755});
}

TEST_F(Prepare, BuildsAnewWhenTheTextOrTheDictionaryChanges) {
  static_cast<void>(prepare());
  test::put(dir_ / "train.txt", "cat\n");
  EXPECT_THAT(tokens_of(prepare().at(Split::train).stream), ElementsAre(5, 2));
  test::put(dir_ / "dict.txt", "dog 1\ncat 1\nfox 1\n");
  EXPECT_THAT(tokens_of(prepare().at(Split::train).stream), ElementsAre(5, 2));
  test::put(dir_ / "dict.txt", "cat 1\n");
  EXPECT_THAT(tokens_of(prepare().at(Split::train).stream), ElementsAre(4, 2));
}

TEST_F(Prepare, BuildsADamagedCutOrOlderCacheAgain) {
  static_cast<void>(prepare());
  const std::filesystem::path cache = cache_file();
  const std::string whole = read_file(cache);
  std::string flipped = whole;
  flipped.back() = static_cast<char>(flipped.back() ^ 1);
  const std::vector<std::string> bad{flipped, whole.substr(0, whole.size() - 1), whole + "x", "",
                                     whole.substr(0, 8) + '\1' + whole.substr(9)};
  for (const std::string& bytes : bad) {
    test::put(cache, bytes);
    const PreparedData data = prepare();
    EXPECT_GT(data.at(Split::train).seconds, 0);
    EXPECT_EQ(tokens_of(data.at(Split::train).stream), kTokens);
    EXPECT_EQ(read_file(cache), whole);
  }
}

TEST_F(Prepare, RefusesToReplaceWhatIsNoCache) {
  static_cast<void>(prepare());
  const std::filesystem::path cache = cache_file();
  for (const std::string& bytes : {std::string("notes"), std::string(600, '\0')}) {
    test::put(cache, bytes);
    EXPECT_THAT(fault(), HasSubstr(cache.string() + ": stands where a text cache belongs"));
    EXPECT_EQ(read_file(cache), bytes);
  }
}

TEST_F(Prepare, RemovesWhatDeadWritersLeftAndNothingElse) {
  const std::string digest(32, 'a');
  const std::vector<std::string> left{"train-" + digest + ".tokens.tmp.123",
                                      "valid-" + digest + ".tokens.tmp.tmp.9",
                                      "tokenizer-" + digest + ".model.tmp.123",
                                      "tokenizer-" + digest + ".txt.sha256.tmp.123",
                                      "index.json.tmp.77",
                                      "index.json.tmp.77.1"};
  const std::vector<std::string> kept{"train-" + digest + ".tokens",
                                      "train-" + digest + ".tokens.tmp.",
                                      "train-" + digest + ".tokens.tmp.12x",
                                      "train-abc.tokens.tmp.123",
                                      "notes.tmp.123",
                                      "my-index.json.tmp.77"};
  std::filesystem::create_directories(dir_ / "cache" / ("test-" + digest + ".tokens.tmp.5"));
  for (const auto& names : {left, kept}) {
    for (const std::string& name : names) {
      test::put(dir_ / "cache" / name, "x");
    }
  }
  static_cast<void>(prepare());
  for (const std::string& name : left) {
    EXPECT_FALSE(std::filesystem::exists(dir_ / "cache" / name)) << name;
  }
  for (const std::string& name : kept) {
    EXPECT_EQ(read_file(dir_ / "cache" / name), "x") << name;
  }
  EXPECT_TRUE(std::filesystem::is_directory(dir_ / "cache" / ("test-" + digest + ".tokens.tmp.5")));
}

TEST_F(Prepare, RemovesWhatACacheWriterThatDiedLeft) {
  static_cast<void>(prepare());
  const std::filesystem::path cache = cache_file();
  std::filesystem::remove(cache);
  const pid_t child = ::fork();
  if (child == 0) {
    CacheWriter writer(cache, {}, 10);
    ::_exit(0);
  }
  ASSERT_EQ(::waitpid(child, nullptr, 0), child);
  const auto files = [this] {
    return std::distance(std::filesystem::directory_iterator(dir_ / "cache"), {});
  };
  ASSERT_EQ(files(), 2) << "the lock and what the writer left";
  static_cast<void>(prepare());
  EXPECT_EQ(files(), 2) << "the lock and the cache";
}

TEST_F(Prepare, BuildsACacheOfAnotherTextUnderItsNameAgain) {
  static_cast<void>(prepare());
  const std::filesystem::path right = cache_file();
  test::put(dir_ / "dict.txt", "cat 1\n");
  const std::string other_digest = prepare().tokenizer->digest();
  std::filesystem::path other;
  for (const auto& entry : std::filesystem::directory_iterator(dir_ / "cache")) {
    if (entry.path().extension() == ".tokens" && entry.path() != right) {
      other = entry.path();
    }
  }
  ASSERT_EQ(read_cache_info(other).key.tokenizer_digest, other_digest);
  std::filesystem::copy_file(right, other, std::filesystem::copy_options::overwrite_existing);
  EXPECT_EQ(prepare().at(Split::train).counts.unknown, 5);
  EXPECT_EQ(read_cache_info(other).key.tokenizer_digest, other_digest);
}

TEST_F(Prepare, RefusesATextThatChangesAfterItWasDigested) {
  const std::string fault = test::fault_while_locked(
      dir_ / "cache", [&] { static_cast<void>(prepare()); },
      [&] { test::put(dir_ / "train.txt", "another text\n"); });
  EXPECT_THAT(fault, testing::StartsWith("data.train: "));
  EXPECT_THAT(fault, HasSubstr("train.txt changed while it was read; run again"));
  EXPECT_EQ(cache_file(), "");
}

TEST_F(Prepare, OpensOnlyTheWantedSplits) {
  config_.data.valid = {(dir_ / "none.txt").string()};
  const PreparedData data = prepare_data(config_, {.wanted = {Split::train}, .progress = false});
  EXPECT_TRUE(data.find(Split::train).has_value());
  EXPECT_THAT(fault(), HasSubstr("data.valid: "));
}

TEST_F(Prepare, CanBeAskedByManyThreadsAtOnce) {
  std::vector<std::string> digests(4);
  {
    std::vector<std::jthread> threads;
    for (std::string& digest : digests) {
      threads.emplace_back([&] { digest = prepare().at(Split::train).stream.digest(); });
    }
  }
  EXPECT_THAT(digests, testing::Each(TokenStream(kTokens).digest()));
}

TEST_F(Prepare, RefusesEmptyAndBinaryText) {
  test::put(dir_ / "train.txt", "");
  EXPECT_THAT(fault(), HasSubstr("train.txt: is empty"));
  test::put(dir_ / "train.txt", "\n\n \n");
  EXPECT_THAT(fault(), HasSubstr("train.txt: is empty"));
  test::put(dir_ / "train.txt", std::string("a\0b\n", 4));
  EXPECT_THAT(fault(), HasSubstr("train.txt: is not text"));
  EXPECT_EQ(cache_file(), "");
}

TEST_F(Prepare, NamesTheCacheDirectoryThatCannotBeMade) {
  config_.data.cache_dir = (dir_ / "dict.txt" / "cache").string();
  EXPECT_THAT(fault(), HasSubstr("dict.txt/cache: cannot be made"));
}

TEST_F(Prepare, TakesATokenizerThatIsGiven) {
  config_.tokenizer.path = "/nowhere";
  const PreparedData data =
      prepare_data(config_, parse_tokenizer("cat 1\n", "given"), {.progress = false});
  EXPECT_EQ(data.at(Split::train).counts.unknown, 5);
}

TEST_F(Prepare, TokenizesOneFileWithoutACache) {
  const auto tokenizer = load_tokenizer(dir_ / "dict.txt");
  const PreparedSplit split = tokenize_file(dir_ / "train.txt", *tokenizer, config_.data);
  EXPECT_EQ(tokens_of(split.stream), kTokens);
  EXPECT_EQ(split.counts, prepare().at(Split::train).counts);
  EXPECT_THAT(test::fault_of(
                  [&] { static_cast<void>(tokenize_file(dir_.path(), *tokenizer, config_.data)); }),
              HasSubstr("is a directory"));
}

TEST_F(Prepare, CountsEachToken) {
  EXPECT_THAT(count_tokens(prepare().at(Split::train).stream, 8),
              ElementsAre(0, 0, 4, 2, 2, 1, 1, 0));
}

// What the log says while this is prepared, times left out.
class PrepareWarnings : public Prepare {
 protected:
  std::vector<std::string> warnings() const {
    testing::internal::CaptureStderr();
    static_cast<void>(prepare());
    std::istringstream log(testing::internal::GetCapturedStderr());
    std::vector<std::string> warnings;
    for (std::string line; std::getline(log, line);) {
      const std::size_t at = line.find(" warning  ");
      if (at != std::string::npos) {
        warnings.push_back(line.substr(at + 10));
      }
    }
    return warnings;
  }
  // The same from the text and from its cache.
  void expect_warnings(const std::vector<std::string>& expected) const {
    EXPECT_EQ(warnings(), expected);
    EXPECT_EQ(warnings(), expected) << "from the cache";
  }
  PrepareWarnings() { config_.data.tokens_per_sample = 1; }
};

TEST_F(PrepareWarnings, TellOfCarriageReturnsAndTheRemedy) {
  test::put(dir_ / "train.txt", "the cat\r\nsat\r\n");
  config_.data.strip_cr = true;
  expect_warnings({});
  EXPECT_THAT(tokens_of(prepare().at(Split::train).stream), ElementsAre(4, 5, 2, 6, 2));
  config_.data.strip_cr = false;
  test::put(dir_ / "dict.txt", "the 3\ncat\r 2\nsat\r 1\n");
  expect_warnings(
      {"data.train: holds 2 carriage returns; lines end at line feeds only, so they stay "
       "in the text; data.strip_cr=true drops those before line feeds"});
}

TEST_F(PrepareWarnings, TellOfBytesThatAreNoUtf8) {
  test::put(dir_ / "a.txt", "the cat\n");
  test::put(dir_ / "b.txt", "sat\ncat c\xE9\n");
  test::put(dir_ / "dict.txt", "the 3\ncat 2\nsat 1\nc\xE9 1\n");
  config_.data.train = {(dir_ / "a.txt").string(), (dir_ / "b.txt").string()};
  expect_warnings({"data.train: holds 1 byte of no UTF-8 character, the first in " +
                   (dir_ / "b.txt").string() +
                   ", line 2; convert the text to UTF-8, for instance with iconv"});
}

TEST_F(PrepareWarnings, TellOfManyUnknownTokensAndTheCommonestWords) {
  std::string text;
  for (int i = 0; i < 8; ++i) {
    text +=
        "the cat sat the cat sat dog w" + std::to_string(i) + (i % 2 == 0 ? " fox\x1B\n" : "\n");
  }
  test::put(dir_ / "train.txt", text);
  expect_warnings(
      {"data.train: 26.3% of its tokens are unknown (20 of 76); the commonest: "
       "\"dog\" 8, \"fox?\" 4, \"w0\" 1, \"w1\" 1, \"w2\" 1"});
  test::put(dir_ / "train.txt",
            "the cat sat the cat sat the cat sat the cat sat the cat sat the cat dog\n\n");
  expect_warnings({});  // a twentieth
}

TEST_F(PrepareWarnings, CountUnknownWordsInBoundedMemory) {
  std::string text;
  for (int i = 0; i < 400000; ++i) {
    text += "w" + std::to_string(i) + (i % 4 == 0 ? " dog\n" : "\n");
  }
  test::put(dir_ / "train.txt", text);
  EXPECT_EQ(prepare().at(Split::train).counts.common_unknown.front(), (UnknownWord{"dog", 100000}));
}

TEST_F(PrepareWarnings, TellOfATextBesideItsCompressedCopy) {
  const std::string text = (dir_ / "train.txt").string();
  test::put(text, "the cat\n");
  test::put(text + ".gz", test::gzipped("the cat\n"));
  config_.data.train = {(dir_ / "train*").string()};
  expect_warnings({"data.train: both " + text + " and " + text +
                   ".gz are read; where one is the other compressed, leave one out"});
}

TEST_F(PrepareWarnings, TellOfATextShorterThanOneSample) {
  test::put(dir_ / "train.txt", "the cat\n");
  config_.data.tokens_per_sample = 3;
  expect_warnings({});
  config_.data.tokens_per_sample = 4;
  expect_warnings(
      {"data.train: has 3 tokens in all, fewer than one sample (data.tokens_per_sample "
       "is 4), so it is one shorter sample"});
}

// A text with its line ends, by byte-level BPE.
class PrepareKept : public Prepare {
 protected:
  PrepareKept() {
    config_.tokenizer.type = TokenizerType::bpe;
    config_.tokenizer.path = TRANSNORMER_SOURCE_DIR "/tests/tokenizer/bpe/small.tiktoken";
    config_.data.line_end = LineEnd::keep;
  }
  [[nodiscard]] std::vector<TokenId> encoded(const std::vector<std::string>& texts) const {
    const auto tokenizer = load_tokenizer(config_.tokenizer.path);
    std::vector<TokenId> ids;
    for (const std::string& text : texts) {
      tokenizer->encode_line(text, ids);
    }
    return ids;
  }
};

TEST_F(PrepareKept, MakesTheTokensOfEachFileAsOneText) {
  const std::string text = " the cat\n\n\n sat\xFF \n  \nend\r\nthe\tend";
  test::put(dir_ / "train.txt", text);
  test::put(dir_ / "more.txt", "\n\nthe cat\n");
  config_.data.train.push_back((dir_ / "more.txt").string());
  const PreparedSplit split = prepare().at(Split::train);
  EXPECT_EQ(tokens_of(split.stream), encoded({text, "\n\nthe cat\n"}));
  EXPECT_EQ(split.counts.lines, 7 + 3);
  EXPECT_EQ(split.counts.words, 5 + 2);
  EXPECT_EQ(split.counts.bytes, std::ssize(text) + 10);
  EXPECT_EQ(split.counts.unknown, 0);
  EXPECT_EQ(split.counts.findings.invalid_bytes, 1);
  EXPECT_EQ(split.counts.unreadable, Unreadable::no);
}

// Several megabytes, so that several threads take several chunks each.
TEST_F(PrepareKept, MakesTheSameTokensWhereverTheTextIsCut) {
  const std::string sentence =
      "the cat sat .\n\n \nIt's  12 \u732B\u3002\n = End = \n \n\tx\u00A0 \r\n\u3000\n";
  std::string text;
  for (int number = 0; text.size() < (5U << 20); ++number) {
    text += sentence.substr(0, static_cast<std::size_t>(number % 40)) + sentence;
  }
  test::put(dir_ / "train.txt", text);
  config_.train.threads = 3;
  const PreparedSplit split = prepare().at(Split::train);
  EXPECT_EQ(split.stream.digest(), TokenStream(encoded({text})).digest());
  config_.data.cache_dir = (dir_ / "other").string();
  config_.data.line_end = LineEnd::eos;
  const SplitCounts by_line = prepare().at(Split::train).counts;
  EXPECT_EQ(split.counts.lines, by_line.lines);
  EXPECT_EQ(split.counts.words, by_line.words);
  EXPECT_EQ(split.counts.bytes, by_line.bytes);
}

TEST_F(PrepareKept, CodesLineEndsOtherwiseWhereAsked) {
  test::put(dir_ / "train.txt", "the cat\n\nsat\n");
  config_.data.line_end = LineEnd::eos;
  const PreparedSplit ended = prepare().at(Split::train);
  std::vector<TokenId> expected = encoded({"the cat"});
  for (const TokenId id : {756, 756}) {
    expected.push_back(id);
  }
  for (const TokenId id : encoded({"sat"})) {
    expected.push_back(id);
  }
  expected.push_back(756);
  EXPECT_EQ(tokens_of(ended.stream), expected);
  EXPECT_EQ(ended.counts.unknown, 0);  // though the end token stands in for an unknown one
  EXPECT_EQ(ended.counts.unreadable, Unreadable::no);
  config_.data.line_end = LineEnd::none;
  EXPECT_EQ(tokens_of(prepare().at(Split::train).stream), encoded({"the cat", "sat"}));
  EXPECT_EQ(prepare().at(Split::train).counts.unreadable, Unreadable::line_ends);
}

TEST_F(PrepareKept, IsReadableUnlessCarriageReturnsAreDropped) {
  test::put(dir_ / "train.txt", "the  </s> cat\r\n\r\n <unk>\r");
  EXPECT_EQ(prepare().at(Split::train).counts.unreadable, Unreadable::no);
  config_.data.strip_cr = true;
  const PreparedSplit split = prepare().at(Split::train);
  EXPECT_EQ(split.counts.unreadable, Unreadable::dropped_carriage_returns);
  EXPECT_EQ(tokens_of(split.stream), encoded({"the  </s> cat\n\n <unk>"}));
}

TEST_F(PrepareKept, NeedsAByteLevelTokenizer) {
  const auto words = load_tokenizer(dir_ / "dict.txt");
  EXPECT_THAT(
      test::fault_of([&] { static_cast<void>(prepare_data(config_, words, {.progress = false})); }),
      HasSubstr("data.line_end: \"keep\" needs a byte-level tokenizer"));
}

// Whether the tokens tell the bytes of this text.
class PrepareReadBack : public Prepare {
 protected:
  [[nodiscard]] Unreadable of(const std::string& text) const {
    test::put(dir_ / "train.txt", text);
    return prepare().at(Split::train).counts.unreadable;
  }
};

TEST_F(PrepareReadBack, HoldsWhereSpacesStandAlike) {
  EXPECT_EQ(of("the cat\n\nsat\n"), Unreadable::no);
  EXPECT_EQ(of(" the cat \n \n sat \n"), Unreadable::no);
  EXPECT_EQ(of(" the cat\n sat\n"), Unreadable::no);
  EXPECT_EQ(of("\xEF\xBB\xBFthe cat\n"), Unreadable::no);
  for (const char* text : {" the cat\nsat\n", "the \ncat\n", "the\n\n \n"}) {
    EXPECT_EQ(of(text), Unreadable::uneven_spaces) << text;
  }
}

TEST_F(PrepareReadBack, FailsForRunsOfSpacesAndTheWordThatIsALineEnd) {
  for (const char* text : {"the  cat\n", "  the\n", "the  \n", "the\n  \n", "the </s> cat\n"}) {
    EXPECT_EQ(of(text), Unreadable::altered_lines) << text;
  }
}

TEST_F(PrepareReadBack, FailsWhereLineEndsAreNotTold) {
  EXPECT_EQ(of("the cat\nsat"), Unreadable::line_ends);
  config_.data.line_end = LineEnd::none;
  EXPECT_EQ(of("the cat\n"), Unreadable::line_ends);
  EXPECT_EQ(of("the\ncat"), Unreadable::line_ends);
  EXPECT_EQ(of("the cat"), Unreadable::no);
}

TEST_F(PrepareReadBack, FailsForUnknownTokensAndDroppedCarriageReturns) {
  EXPECT_EQ(of("the dog\n"), Unreadable::unknown_tokens);
  config_.data.strip_cr = true;
  EXPECT_EQ(of("the cat\r\n"), Unreadable::dropped_carriage_returns);
  EXPECT_EQ(prepare().at(Split::train).counts.bytes, 9);
  EXPECT_EQ(of("the cat\n"), Unreadable::no);
}

// The counts that fairseq's users know.
TEST_F(Prepare, GivesThePublishedCountsOfWikiText103) {
  const auto folder = test::shared_data("wikitext-103");
  TRANSNORMER_NEEDS(folder);
  config_.tokenizer.path = (folder / "dict.txt").string();
  config_.data.train.clear();
  config_.data.valid = {(folder / "wiki.valid.tokens").string()};
  config_.data.test = {(folder / "wiki.test.tokens").string()};
  const PreparedData data = prepare();
  EXPECT_EQ(data.tokenizer->size(), 267744);
  EXPECT_EQ(data.at(Split::valid).counts.tokens, 217646);
  EXPECT_EQ(data.at(Split::valid).counts.unknown, 1657);
  EXPECT_EQ(data.at(Split::test).counts.tokens, 245569);
  EXPECT_EQ(data.at(Split::test).counts.unknown, 2492);
}

}  // namespace
}  // namespace transnormer
