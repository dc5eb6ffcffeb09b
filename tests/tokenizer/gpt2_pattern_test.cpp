#include "tokenizer/gpt2_pattern.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <random>
#include <string>
#include <vector>

namespace transnormer {
namespace {

using testing::ElementsAre;

std::vector<std::string> pieces(std::string_view text) {
  std::vector<std::string> all;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = gpt2_piece_end(text, at);
    all.emplace_back(text.substr(at, end - at));
    at = end;
  }
  return all;
}

// One character with what the pattern asks of it.
struct Character {
  std::string bytes;
  char is;  // l: letter, n: number, s: white space, o: other
};

const std::vector<Character>& alphabet() {
  static const std::vector<Character> kAlphabet{
      {"s", 'l'},      {"t", 'l'},      {"r", 'l'},      {"e", 'l'},    {"v", 'l'},
      {"l", 'l'},      {"m", 'l'},      {"d", 'l'},      {"S", 'l'},    {"é", 'l'},
      {"猫", 'l'},     {"1", 'n'},      {"५", 'n'},      {"½", 'n'},    {" ", 's'},
      {" ", 's'},      {"\n", 's'},     {"\t", 's'},     {"\r", 's'},   {".", 'o'},
      {"\u00A0", 's'}, {"\u3000", 's'}, {"'", 'o'},      {"'", 'o'},    {"👍", 'o'},
      {"\x01", 'o'},   {"\u0301", 'o'}, {"\u200B", 'o'}, {"\xFF", 'o'}, {"\xE2\x80", 'o'}};
  return kAlphabet;
}

using Characters = std::vector<Character>;

// The alternatives of the pattern, each tried in turn as a backtracking matcher does.
std::size_t plain_piece(const Characters& text, std::size_t at) {
  const auto is = [&](std::size_t i, char kind) { return i < text.size() && text[i].is == kind; };
  const auto run = [&](std::size_t i, char kind) {
    std::size_t end = i;
    while (is(end, kind)) {
      ++end;
    }
    return end;
  };
  for (const std::string ending : {"s", "t", "re", "ve", "m", "ll", "d"}) {
    std::string found;
    for (std::size_t i = at; i < text.size() && i <= at + ending.size(); ++i) {
      found += text[i].bytes;
    }
    if (found == "'" + ending) {
      return at + 1 + ending.size();
    }
  }
  for (const char kind : {'l', 'n', 'o'}) {
    for (const bool with_space : {true, false}) {
      const std::size_t begin = at + (with_space ? 1 : 0);
      if ((!with_space || text[at].bytes == " ") && run(begin, kind) > begin) {
        return run(begin, kind);
      }
    }
  }
  for (std::size_t end = run(at, 's'); end > at; --end) {
    if (end == text.size() || text[end].is == 's') {  // no \S follows
      return end;
    }
  }
  return run(at, 's');
}

std::string joined(const Characters& text, std::size_t begin, std::size_t end) {
  std::string bytes;
  for (std::size_t i = begin; i < end; ++i) {
    bytes += text[i].bytes;
  }
  return bytes;
}

std::vector<std::string> plain_pieces(const Characters& text) {
  std::vector<std::string> all;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = plain_piece(text, at);
    all.push_back(joined(text, at, end));
    at = end;
  }
  return all;
}

template <typename Check>
void for_random_texts(const Check& check) {
  std::mt19937 random(3);
  for (int round = 0; round < 20000; ++round) {
    Characters text(random() % 14);
    for (Character& character : text) {
      character = alphabet()[random() % alphabet().size()];
    }
    check(text);
  }
}

TEST(Gpt2Pattern, CutsWordsNumbersAndSignsWithTheSpaceBefore) {
  EXPECT_THAT(pieces("They've 12 cats, 3\u00BD dogs!?"),
              ElementsAre("They", "'ve", " 12", " cats", ",", " 3\u00BD", " dogs", "!?"));
  EXPECT_THAT(pieces("it'S 'd' ''s"), ElementsAre("it", "'", "S", " '", "d", "'", " ''", "s"));
}

TEST(Gpt2Pattern, LeavesTheLastOfSeveralSpacesToTheWord) {
  EXPECT_THAT(pieces("a   b"), ElementsAre("a", "  ", " b"));
  EXPECT_THAT(pieces("a \n\nb"), ElementsAre("a", " \n", "\n", "b"));
  EXPECT_THAT(pieces("a\n b"), ElementsAre("a", "\n", " b"));
  EXPECT_THAT(pieces("a \u00A0\u3000b"), ElementsAre("a", " \u00A0", "\u3000", "b"));
  EXPECT_THAT(pieces("a \n\n"), ElementsAre("a", " \n\n"));
}

TEST(Gpt2Pattern, KnowsTheCharactersOfUnicode16) {
  // A letter and a digit of that version; no space any more, and never one.
  EXPECT_THAT(pieces("a\u1C89 1\U00010D40"), ElementsAre("a\u1C89", " 1\U00010D40"));
  EXPECT_THAT(pieces("a\u180Eb"), ElementsAre("a", "\u180E", "b"));
  EXPECT_THAT(pieces("a\u0085\u0085b\u2028"), ElementsAre("a", "\u0085", "\u0085", "b", "\u2028"));
}

TEST(Gpt2Pattern, TakesAByteOfNoCharacterForASign) {
  EXPECT_THAT(pieces("a\xFF\xFE b\xC3"), ElementsAre("a", "\xFF\xFE", " b", "\xC3"));
  EXPECT_THAT(pieces("\xC3 a"), ElementsAre("\xC3", " a"));
  EXPECT_THAT(pieces(" \xE2\x80!"), ElementsAre(" \xE2\x80!"));
}

TEST(Gpt2Pattern, CutsAsItsAlternativesTriedInTurn) {
  for_random_texts([](const Characters& text) {
    const std::string bytes = joined(text, 0, text.size());
    ASSERT_EQ(pieces(bytes), plain_pieces(text)) << testing::PrintToString(bytes);
  });
}

TEST(Gpt2Pattern, APlaceToCutChangesNoPiece) {
  int cuts = 0;
  for_random_texts([&cuts](const Characters& text) {
    const std::string whole = joined(text, 0, text.size());
    for (std::string left = whole;;) {
      const std::size_t cut = last_gpt2_cut(left, 0);
      if (cut == std::string::npos) {
        break;
      }
      ++cuts;
      ASSERT_TRUE(cut > 0 && cut < left.size());
      left.resize(cut);
      std::vector<std::string> parts = pieces(left);
      for (const std::string& piece : pieces(whole.substr(cut))) {
        parts.push_back(piece);
      }
      ASSERT_EQ(parts, pieces(whole)) << testing::PrintToString(whole) << " at " << cut;
    }
  });
  EXPECT_GT(cuts, 5000);
}

TEST(Gpt2Pattern, IsCutBehindACharacterThatIsNoWhiteSpace) {
  constexpr std::size_t kNone = std::string_view::npos;
  EXPECT_EQ(last_gpt2_cut("one two\n", 0), 7U);
  EXPECT_EQ(last_gpt2_cut("one two \n \n", 0), 7U);
  EXPECT_EQ(last_gpt2_cut("one two", 0), 3U);
  EXPECT_EQ(last_gpt2_cut("猫。\n", 0), 6U);
  EXPECT_EQ(last_gpt2_cut("one\r\n", 0), 3U);
  EXPECT_EQ(last_gpt2_cut("one\xC2 \n", 0), 4U);
  for (const char* text :
       {"", "one", " one", "\n\n", "\u00A0 ", "\u2028\n", "\t\n", "one\t", "one\r"}) {
    EXPECT_EQ(last_gpt2_cut(text, 0), kNone) << text;
  }
  EXPECT_EQ(last_gpt2_cut("one two", 4), kNone);
  EXPECT_EQ(last_gpt2_cut("one two", 3), 3U);
  EXPECT_EQ(last_gpt2_cut("one\r\n", 4), 3U);
}

}  // namespace
}  // namespace transnormer
