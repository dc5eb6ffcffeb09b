#include "data/token_stream.h"

#include <chrono>
#include <fstream>
#include <numeric>

#include "data/support.h"
#include "util/hash.h"

namespace transnormer {
namespace {

class StoredTokens : public testing::Test {
 protected:
  // The tokens in a file, behind a header of 3 bytes.
  template <typename Stored>
  TokenStream stored(const std::vector<Stored>& tokens, std::int64_t vocab_size) const {
    const std::string payload(reinterpret_cast<const char*>(tokens.data()),
                              tokens.size() * sizeof(Stored));
    test::put(path_, "abc" + payload);
    return TokenStream({.file = InputFile(path_),
                        .offset = 3,
                        .width = sizeof(Stored),
                        .count = std::ssize(tokens),
                        .vocab_size = vocab_size,
                        .payload_digest = sha256(payload),
                        .content_digest = "told"});
  }
  // Writes over the tokens, at a later tick of the clock than their making.
  void overwrite(std::int64_t at, const std::string& bytes) const {
    const auto later = std::filesystem::last_write_time(path_) + std::chrono::seconds(1);
    std::fstream file(path_, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(at);
    file << bytes << std::flush;
    std::filesystem::last_write_time(path_, later);
  }
  static std::string fault_of_reading(const TokenStream& stream) {
    return test::fault_of([&] { stream.for_each([](TokenId) {}); });
  }

  test::TemporaryDirectory dir_;
  std::filesystem::path path_ = dir_ / "tokens";
};

TEST_F(StoredTokens, AreReadTheSameAtBothWidths) {
  const std::vector<TokenId> tokens{7, 65535, 0, 40000, 3};
  const TokenStream narrow = stored<std::uint16_t>({7, 65535, 0, 40000, 3}, 65536);
  const TokenStream held(tokens);
  EXPECT_EQ(narrow.digest(), "told");
  for (const TokenStream& stream : {narrow, held}) {
    ASSERT_EQ(stream.size(), 5);
    for (std::int64_t i = 0; i < 5; ++i) {
      EXPECT_EQ(stream[i], tokens[static_cast<std::size_t>(i)]);
    }
    std::vector<std::int64_t> out(4, -9);
    stream.copy(1, 3, out.data());
    EXPECT_EQ(out, (std::vector<std::int64_t>{65535, 0, 40000, -9}));
  }
  EXPECT_EQ(stored<std::uint32_t>({70000, 1}, 70001)[0], 70000);
}

TEST_F(StoredTokens, AreReadInStretchesOfAnyLength) {
  std::vector<std::uint32_t> tokens(50000);
  std::iota(tokens.begin(), tokens.end(), 0U);
  const TokenStream stream = stored(tokens, 50000);
  std::vector<std::int64_t> out(49000);
  stream.copy(500, 49000, out.data());
  EXPECT_EQ(out.front(), 500);
  EXPECT_EQ(out.back(), 49499);
  EXPECT_TRUE(std::ranges::is_sorted(out));
  TokenId next = 0;
  stream.for_each([&next](TokenId token) { EXPECT_EQ(token, next++); });
  EXPECT_EQ(next, 50000);
}

TEST_F(StoredTokens, AreAnErrorWhereTheFileWasCut) {
  const TokenStream stream = stored<std::uint16_t>({1, 2, 3, 4}, 10);
  std::filesystem::resize_file(path_, 7);
  EXPECT_EQ(fault_of_reading(stream),
            path_.string() + ": was cut off at byte 7 while it was in use");
}

TEST_F(StoredTokens, AreAnErrorWhereTheFileWasOverwritten) {
  const TokenStream stream = stored<std::uint16_t>({1, 2, 3, 4}, 10);
  overwrite(9, std::string("\5\0", 2));  // a token of the vocabulary, after the one that is read
  std::int64_t token = 0;
  EXPECT_THAT(test::fault_of([&] { stream.copy(0, 1, &token); }),
              testing::StartsWith(path_.string() + ": was overwritten while it was in use"));
}

TEST_F(StoredTokens, AreAnErrorWhereTheyAreNoneOfTheVocabulary) {
  const TokenStream stream = stored<std::uint32_t>({1, 2, 3, 4}, 10);
  for (const std::string& token : {std::string("\x0A\0\0\0", 4), std::string(4, '\xFF')}) {
    overwrite(7, token);
    EXPECT_THAT(fault_of_reading(stream), testing::HasSubstr("and the vocabulary has 10"));
  }
}

TEST_F(StoredTokens, OutliveTheNameOfTheirFileAndATouchOfIt) {
  const TokenStream stream = stored<std::uint16_t>({1, 2, 3, 4}, 10);
  std::filesystem::last_write_time(
      path_, std::filesystem::file_time_type::clock::now() + std::chrono::hours(1));
  EXPECT_EQ(stream[3], 4);
  test::put(dir_ / "other", "another file");
  std::filesystem::rename(dir_ / "other", path_);
  EXPECT_EQ(stream[2], 3);
  EXPECT_EQ(fault_of_reading(stream), "none");
}

TEST(TokenStream, KnowsTheDigestOfItsTokensAsFourBytesEach) {
  const TokenStream stream(std::vector<TokenId>{1, 258});
  EXPECT_EQ(stream.digest(), sha256(std::string_view("\1\0\0\0\2\1\0\0", 8)));
}

}  // namespace
}  // namespace transnormer
