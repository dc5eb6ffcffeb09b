#include "data/cache_file.h"

#include <cstring>

#include "data/support.h"

namespace transnormer {
namespace {

using testing::HasSubstr;

const CacheKey kKey{std::string(64, 'a'), std::string(64, 'b'), LineEnd::none};
const SplitCounts kCounts{.tokens = 5,
                          .types = 4,
                          .unknown = 1,
                          .lines = 2,
                          .bytes = 30,
                          .words = 6,
                          .findings = {11, 12, 13, 14, 15},
                          .unreadable = Unreadable::line_ends,
                          .common_unknown = {{"w\xC3\xA4hrend", 9}, {"a", 8}}};
constexpr std::size_t kHeader = 1024;

class CacheFile : public testing::Test {
 protected:
  void write(const std::vector<TokenId>& tokens, std::int64_t vocab_size) const {
    CacheWriter writer(path_, kKey, vocab_size);
    const std::span<const TokenId> all(tokens);
    writer.append(all.first(2));
    writer.append(all.subspan(2));
    writer.finish(kCounts);
  }
  [[nodiscard]] std::string fault_of_opening() const {
    FileDigests digests(dir_.path());
    const std::string fault =
        test::fault_of([&] { static_cast<void>(open_cache(path_, kKey, digests)); });
    EXPECT_EQ(test::fault_of([&] { static_cast<void>(read_cache_info(path_)); }), fault);
    return fault;
  }

  test::TemporaryDirectory dir_;
  std::filesystem::path path_ = dir_ / "valid.tokens";
};

TEST_F(CacheFile, GivesBackTokensCountsAndKeyAtBothWidths) {
  for (const std::int64_t vocab_size : {65536, 65537}) {
    const std::vector<TokenId> tokens{3, 65535, 0, 9, static_cast<TokenId>(vocab_size - 1)};
    write(tokens, vocab_size);
    FileDigests digests(dir_.path());
    const OpenedCache cache = open_cache(path_, kKey, digests);
    EXPECT_EQ(cache.info.token_width, vocab_size == 65536 ? 2 : 4);
    EXPECT_EQ(cache.info.vocab_size, vocab_size);
    EXPECT_EQ(cache.info.counts, kCounts);
    EXPECT_EQ(cache.info.key, kKey);
    const TokenStream held(tokens);
    EXPECT_EQ(cache.stream.digest(), held.digest());
    ASSERT_EQ(cache.stream.size(), 5);
    for (std::int64_t i = 0; i < 5; ++i) {
      EXPECT_EQ(cache.stream[i], held[i]);
    }
    EXPECT_TRUE(is_cache_file(path_));
    EXPECT_EQ(read_cache_info(path_).counts, kCounts);
  }
}

TEST_F(CacheFile, LeavesNothingWhereItIsNotFinished) {
  {
    CacheWriter writer(path_, kKey, 100);
    writer.append(std::vector<TokenId>{1, 2});
    EXPECT_FALSE(std::filesystem::exists(path_));
  }
  EXPECT_TRUE(std::filesystem::is_empty(dir_.path()));
}

TEST_F(CacheFile, RefusesEveryFlippedBit) {
  write({3, 4, 5, 6, 7}, 100);
  const std::string whole = read_file(path_);
  ASSERT_EQ(whole.size(), kHeader + 5 * 2);
  for (std::size_t place = 0; place < whole.size(); ++place) {
    test::flip_bit(path_, place);
    EXPECT_NE(fault_of_opening(), "none") << place;
    test::put(path_, whole);
  }
  EXPECT_EQ(fault_of_opening(), "none");
}

TEST_F(CacheFile, RefusesEveryCutAndAnyAddition) {
  write({3, 4, 5, 6, 7}, 100);
  const std::string whole = read_file(path_);
  for (const std::size_t size :
       {std::size_t{0}, std::size_t{7}, std::size_t{100}, kHeader, whole.size() - 1}) {
    test::put(path_, whole.substr(0, size));
    EXPECT_THAT(fault_of_opening(), HasSubstr(size < 8 ? "is not a text cache" : "is cut off"));
  }
  test::put(path_, whole + "x");
  EXPECT_THAT(fault_of_opening(), HasSubstr("is damaged"));
}

TEST_F(CacheFile, RefusesOtherFilesAndOtherVersions) {
  test::put(path_, "just some text that is no cache at all");
  EXPECT_THAT(fault_of_opening(), HasSubstr("is not a text cache"));
  EXPECT_FALSE(is_cache_file(path_));
  write({3, 4, 5, 6, 7}, 100);
  std::string bytes = read_file(path_);
  bytes[8] = 1;
  test::put(path_, bytes);
  EXPECT_THAT(fault_of_opening(),
              HasSubstr("is a text cache of version 1; this program reads version 2"));
}

TEST_F(CacheFile, RefusesACacheOfAnotherTextTokenizerOrLineEnd) {
  write({3, 4, 5, 6, 7}, 100);
  FileDigests digests(dir_.path());
  for (CacheKey key : {CacheKey{"other", kKey.source_digest, kKey.line_end},
                       CacheKey{kKey.tokenizer_digest, "other", kKey.line_end},
                       CacheKey{kKey.tokenizer_digest, kKey.source_digest, LineEnd::eos},
                       CacheKey{kKey.tokenizer_digest, kKey.source_digest, kKey.line_end, true}}) {
    EXPECT_THAT(test::fault_of([&] { static_cast<void>(open_cache(path_, key, digests)); }),
                HasSubstr("was made from another text or by another tokenizer"));
    EXPECT_NE(key.file_name("valid"), kKey.file_name("valid"));
  }
  EXPECT_NE(kKey.file_name("valid"), kKey.file_name("test"));
}

// A header with these bytes at a place, under a digest that fits.
std::string forged(std::string bytes, std::size_t place, std::int64_t value, std::size_t size) {
  std::memcpy(bytes.data() + place, &value, size);
  const std::string digest = sha256(std::string_view(bytes).substr(0, kHeader - 64));
  return bytes.replace(kHeader - 64, 64, digest);
}

TEST_F(CacheFile, RefusesFiguresThatCannotBe) {
  write({3, 4, 5, 6, 7}, 100);
  const std::string whole = read_file(path_);
  ASSERT_EQ(forged(whole, 24, 5, 8), whole) << "the number of tokens stands at byte 24";
  for (const std::int64_t tokens : {std::int64_t{-1}, std::int64_t{6}, std::int64_t{1} << 62,
                                    (std::int64_t{1} << 62) + 5, INT64_MAX, INT64_MIN}) {
    test::put(path_, forged(whole, 24, tokens, 8));
    EXPECT_NE(fault_of_opening(), "none") << tokens;
  }
  for (const std::int64_t width : {0, 1, 3, 4, -2}) {
    test::put(path_, forged(whole, 12, width, 4));
    EXPECT_THAT(fault_of_opening(), HasSubstr("its header holds figures that cannot be")) << width;
  }
  for (std::size_t place = 16; place < 136; place += 8) {
    if (place != 24) {
      test::put(path_, forged(whole, place, -1, 8));
      EXPECT_THAT(fault_of_opening(), HasSubstr("its header holds figures that cannot be"))
          << place;
    }
  }
  test::put(path_, forged(whole, 16, std::int64_t{1} << 31, 8));
  EXPECT_NE(fault_of_opening(), "none") << "a token has 31 bits";
  const std::size_t digests = kHeader - 64 - 328 - 4 * 64;
  test::put(path_, forged(whole, digests, 0xFF, 1));
  EXPECT_THAT(fault_of_opening(), HasSubstr("its header holds figures that cannot be"));
}

TEST_F(CacheFile, CutsLongUnknownWordsBetweenCharacters) {
  SplitCounts counts = kCounts;
  counts.common_unknown = {{std::string(39, 'x') + "\xC3\xA4", 9},
                           {std::string(38, 'x') + "\xC3\xA4", 8}};
  CacheWriter writer(path_, kKey, 100);
  writer.append(std::vector<TokenId>{1, 2, 3, 4, 5});
  writer.finish(counts);
  const std::vector<UnknownWord> read = read_cache_info(path_).counts.common_unknown;
  ASSERT_EQ(read.size(), 2U);
  EXPECT_EQ(read[0].word, std::string(39, 'x'));
  EXPECT_EQ(read[1], counts.common_unknown[1]);
}

}  // namespace
}  // namespace transnormer
