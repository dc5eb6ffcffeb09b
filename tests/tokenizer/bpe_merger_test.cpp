#include "tokenizer/bpe_merger.h"

#include <algorithm>
#include <random>

#include "tokenizer/bpe_files.h"
#include "tokenizer/bpe_fixture.h"

namespace transnormer {
namespace {

class BpeMergerTest : public testing::Test {
 protected:
  BpeMergerTest()
      : vocabulary_(read_bpe(read_file(test::bpe_file("small.tiktoken")), "small", std::nullopt)),
        merger_(vocabulary_.bytes, 1) {  // so that it grows
    for (const BpeMerge& merge : vocabulary_.merges) {
      merger_.add(merge);
    }
  }

  [[nodiscard]] std::vector<TokenId> merged(std::string_view piece) {
    std::vector<TokenId> ids;
    merger_.merge(piece, ids, memory_);
    return ids;
  }

  // Merge by merge: the first of the list that applies, at its leftmost place, again and again.
  [[nodiscard]] std::vector<TokenId> plainly_merged(std::string_view piece) const {
    std::vector<TokenId> ids;
    for (const char byte : piece) {
      ids.push_back(vocabulary_.bytes[static_cast<unsigned char>(byte)]);
    }
    for (bool again = true; again;) {
      again = false;
      for (const BpeMerge& merge : vocabulary_.merges) {
        const std::array pair{merge.left, merge.right};
        const auto at = std::search(ids.begin(), ids.end(), pair.begin(), pair.end());
        if (at != ids.end()) {
          *at = merge.joined;
          ids.erase(at + 1);
          again = true;
          break;
        }
      }
    }
    return ids;
  }

  BpeVocabulary vocabulary_;
  BpeMerger merger_;
  BpeMerger::Memory memory_;
};

TEST_F(BpeMergerTest, JoinsThePairOfTheLowestRankFirst) {
  std::mt19937 random(5);
  const std::string letters = "theandmil sorg \n'";
  for (int round = 0; round < 3000; ++round) {
    std::string piece(random() % 12, ' ');
    for (char& letter : piece) {
      letter = letters[random() % letters.size()];
    }
    ASSERT_EQ(merged(piece), plainly_merged(piece)) << piece;
  }
  EXPECT_EQ(merged(" the").size(), 1U);
  EXPECT_TRUE(merged("").empty());
}

TEST_F(BpeMergerTest, JoinsRunsFromTheLeft) {
  const std::string odd(5, '\n');
  EXPECT_EQ(merged(odd), plainly_merged(odd));
  for (const std::size_t size : {63U, 64U, 65U}) {
    EXPECT_EQ(merged(std::string(size, ' ')), plainly_merged(std::string(size, ' ')));
  }
}

// Of a megabyte: hopeless where the work grows with the square of the length.
TEST_F(BpeMergerTest, TakesPiecesOfAnyLength) {
  std::string piece;
  while (piece.size() < (1U << 20)) {
    piece += "thethat";
  }
  const std::vector<TokenId> ids = merged(piece);
  EXPECT_LT(ids.size(), piece.size() * 3 / 4);
  std::string back;
  for (const TokenId id : ids) {
    back += vocabulary_.tokens[static_cast<std::size_t>(id)].bytes;
  }
  EXPECT_EQ(back, piece);
}

}  // namespace
}  // namespace transnormer
