#include "data/token_stream.h"

#include <gtest/gtest.h>

#include "util/hash.h"

namespace transnormer {
namespace {

TEST(TokenStream, ReadsTheSameTokensAtBothWidths) {
  const auto narrow = std::make_shared<std::vector<std::uint16_t>>(
      std::vector<std::uint16_t>{7, 65535, 0, 40000, 3});
  const TokenStream mapped(narrow, narrow->data(), 2, 5);
  const TokenStream held(std::vector<TokenId>{7, 65535, 0, 40000, 3});
  ASSERT_EQ(mapped.size(), held.size());
  for (std::int64_t i = 0; i < held.size(); ++i) {
    EXPECT_EQ(mapped[i], held[i]);
  }
  std::vector<std::int64_t> out(3, -9);
  mapped.copy(1, 3, out.data());
  EXPECT_EQ(out, (std::vector<std::int64_t>{65535, 0, 40000}));
  held.copy(2, 2, out.data());
  EXPECT_EQ(out, (std::vector<std::int64_t>{0, 40000, 40000}));
}

TEST(TokenStream, KnowsTheDigestOfItsTokensAsFourBytesEach) {
  const TokenStream stream(std::vector<TokenId>{1, 258});
  EXPECT_EQ(stream.digest(), sha256(std::string_view("\1\0\0\0\2\1\0\0", 8)));
}

}  // namespace
}  // namespace transnormer
