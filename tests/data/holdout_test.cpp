#include "data/holdout.h"

#include <algorithm>
#include <cmath>
#include <sstream>

#include "data/cache_file.h"
#include "data/prepare.h"
#include "data/support.h"
#include "data/text_reader.h"
#include "tokenizer/gpt2_pattern.h"
#include "util/compressed.h"

namespace transnormer {
namespace {

using testing::AllOf;
using testing::HasSubstr;

// Lines that are all different, of 10 to 100 bytes.
std::vector<std::string> some_lines(int count) {
  std::vector<std::string> lines;
  for (int i = 0; i < count; ++i) {
    lines.push_back(std::to_string(i) + std::string(static_cast<std::size_t>(i * 37 % 90), ' ') +
                    "end");
  }
  return lines;
}

std::string joined(const std::vector<std::string>& lines) {
  std::string text;
  for (const std::string& line : lines) {
    text += line + '\n';
  }
  return text;
}

std::vector<std::string> lines_in(const std::string& text) {
  std::istringstream stream(text);
  std::vector<std::string> lines;
  for (std::string line; std::getline(stream, line);) {
    lines.push_back(line);
  }
  return lines;
}

class HoldoutTest : public testing::Test {
 protected:
  std::filesystem::path file(const std::string& name, const std::string& bytes) const {
    test::put(dir_ / name, bytes);
    return dir_ / name;
  }
  static std::string part(const std::vector<std::filesystem::path>& files, double share,
                          bool is_held_out, std::size_t chunk_bytes = 1 << 20) {
    TextReader reader({files, false, {share, is_held_out}}, chunk_bytes);
    std::string text;
    for (TextChunk chunk; reader.next(chunk);) {
      text += chunk.text + (chunk.text.ends_with('\n') ? "" : "\n");
    }
    return text;
  }
  // Each line stands in exactly one of the parts, in its order. Returns which are held out.
  static std::vector<bool> dealt(const std::vector<std::string>& lines, const std::string& rest,
                                 const std::string& held_out) {
    const std::vector<std::string> of_rest = lines_in(rest);
    const std::vector<std::string> of_held_out = lines_in(held_out);
    std::vector<bool> dealt;
    std::size_t next = 0;
    for (const std::string& line : lines) {
      const std::size_t taken = dealt.size() - next;  // of the rest
      if (next < of_held_out.size() && of_held_out[next] == line) {
        ++next;
        dealt.push_back(true);
      } else {
        EXPECT_TRUE(taken < of_rest.size() && of_rest[taken] == line) << line;
        dealt.push_back(false);
      }
    }
    EXPECT_EQ(of_rest.size() + of_held_out.size(), lines.size());
    return dealt;
  }

  test::TemporaryDirectory dir_;
};

TEST_F(HoldoutTest, PutsEachLineIntoOnePartAndKeepsTheOrder) {
  const std::vector<std::string> lines = some_lines(20000);
  const auto path = file("a", joined(lines));
  for (const double share : {0.001, 0.1, 1.0 / 3, 0.5, 0.77, 0.99}) {
    dealt(lines, part({path}, share, false), part({path}, share, true));
  }
}

TEST_F(HoldoutTest, TakesTheShareOfShortTextsLineByLine) {
  const std::vector<std::string> lines = some_lines(30);
  const auto path = file("a", joined(lines));
  for (const double share : {0.05, 0.1, 0.25, 0.5, 0.9}) {
    const auto held_out = dealt(lines, part({path}, share, false), part({path}, share, true));
    EXPECT_NEAR(static_cast<double>(std::ranges::count(held_out, true)), share * 30, 1) << share;
  }
}

TEST_F(HoldoutTest, TakesTheShareOfLongTextsInLongRuns) {
  const std::vector<std::string> lines = some_lines(300000);  // 17 MB
  const std::string text = joined(lines);
  const auto path = file("a", text);
  for (const double share : {0.02, 0.1, 0.4}) {
    const std::string held_out = part({path}, share, true);
    EXPECT_NEAR(static_cast<double>(held_out.size()), share * static_cast<double>(text.size()),
                2 * 65536);
    // All along the text, not at one place.
    const std::vector<bool> where = dealt(lines, part({path}, share, false), held_out);
    const std::int64_t half = std::ssize(where) / 2;
    const double before =
        static_cast<double>(std::count(where.begin(), where.begin() + half, true));
    EXPECT_NEAR(before / static_cast<double>(half), share, 0.3 * share);
    int runs = 0;
    for (std::size_t i = 1; i < where.size(); ++i) {
      runs += where[i] && !where[i - 1] ? 1 : 0;
    }
    EXPECT_LT(runs, 1500);
    EXPECT_GT(runs, 20);
  }
}

TEST_F(HoldoutTest, DependsOnTheBytesOfTheTextAlone) {
  const std::vector<std::string> lines = some_lines(5000);
  const std::string text = joined(lines);
  const std::size_t middle = joined(std::vector(lines.begin(), lines.begin() + 1777)).size();
  const auto whole = file("whole", text);
  const auto first = file("first", text.substr(0, middle));
  const auto second = file("second.zst", test::zstd_made(text.substr(middle)));
  const std::string expected = part({whole}, 0.2, true);
  for (const std::size_t chunk_bytes : {1, 17, 1000, 100000}) {
    EXPECT_EQ(part({whole}, 0.2, true, chunk_bytes), expected);
    EXPECT_EQ(part({first, second}, 0.2, true, chunk_bytes), expected);
  }
}

TEST_F(HoldoutTest, LeavesThePartsAsTheyAreWhereTextIsAddedAtTheEnd) {
  const std::vector<std::string> lines = some_lines(5000);
  const auto grown = file("grown", joined(lines));
  const auto before = file("before", joined(std::vector(lines.begin(), lines.begin() + 3000)));
  EXPECT_THAT(part({grown}, 0.1, true), testing::StartsWith(part({before}, 0.1, true)));
}

TEST_F(HoldoutTest, EndsALineWithItsFile) {
  const auto a = file("a", "one\ntw");
  const auto b = file("b", "o\nthree");
  const std::string both = part({a, b}, 0.5, true) + part({a, b}, 0.5, false);
  EXPECT_THAT(lines_in(both), testing::UnorderedElementsAre("one", "tw", "o", "three"));
}

TEST_F(HoldoutTest, TellsTheLineOfWhatIsNoUtf8InTheFile) {
  std::vector<std::string> lines = some_lines(100);
  const std::string held_out = part({file("a", joined(lines))}, 0.3, true);
  const std::string last = lines_in(held_out).back();
  const auto number = std::ranges::find(lines, last) - lines.begin();
  lines[static_cast<std::size_t>(number)].back() = '\xFF';
  TextReader reader({{file("b", joined(lines))}, false, {0.3, true}}, 64);
  for (TextChunk chunk; reader.next(chunk);) {
  }
  EXPECT_EQ(reader.findings().invalid_line, number + 1);
  TextReader rest({{dir_ / "b"}, false, {0.3, false}}, 64);
  for (TextChunk chunk; rest.next(chunk);) {
  }
  EXPECT_EQ(rest.findings(), TextFindings());
}

// Two parts of a text, prepared.
// A byte-level BPE's text is cut inside of lines; what stands between two gaps is one text to it.
TEST_F(HoldoutTest, IsCutIntoTheSamePiecesInChunksOfAnyLength) {
  std::string text;
  for (int i = 0; i < 3000; ++i) {
    text += std::string(static_cast<std::size_t>(i * 7 % 4), ' ') + "word" + std::to_string(i) +
            (i % 5 == 0   ? "  \n\n\n"
             : i % 3 == 0 ? "\n"
                          : " ");
  }
  const std::vector<std::filesystem::path> files{file("a", text), file("b", "end" + text)};
  struct Cut {
    std::string text;
    std::vector<std::string> pieces;
    std::int64_t lines = 0;
  };
  const auto cut = [&](std::size_t chunk_bytes) {
    TextReader reader({files, false, {0.3, false}}, chunk_bytes, TextCut::white_space);
    Cut made;
    for (TextChunk chunk; reader.next(chunk);) {
      made.text += chunk.text;
      made.lines += std::ranges::count(chunk.text, '\n');
      for (std::size_t at = 0; at < chunk.text.size();) {
        const std::size_t end = gpt2_piece_end(chunk.text, at);
        made.pieces.push_back(chunk.text.substr(at, end - at));
        at = end;
      }
    }
    return made;
  };
  const Cut whole = cut(1 << 20);
  std::string by_lines = part(files, 0.3, false);
  EXPECT_GT(whole.lines, 1000);
  EXPECT_LT(whole.lines, 0.75 * static_cast<double>(std::ranges::count(text + text, '\n')));
  std::erase(by_lines, '\n');
  std::string without_ends = whole.text;
  std::erase(without_ends, '\n');
  EXPECT_EQ(without_ends, by_lines);
  for (const std::size_t chunk_bytes : {40U, 333U, 5000U}) {
    const Cut found = cut(chunk_bytes);
    EXPECT_EQ(found.text, whole.text) << chunk_bytes;
    EXPECT_EQ(found.pieces, whole.pieces) << chunk_bytes;
  }
}

class PreparedHoldout : public HoldoutTest {
 protected:
  PreparedHoldout() {
    config_.data.train = {file("train.txt", text()).string()};
    config_.data.cache_dir = (dir_ / "cache").string();
    config_.data.holdout = 0.1;
  }
  static std::string text() {
    std::string lines;
    for (int i = 0; i < 300; ++i) {
      lines += "word" + std::to_string(i) + " and so on\n";
    }
    return lines;
  }
  [[nodiscard]] PreparedData prepare() const { return prepare_data(config_, {.progress = false}); }
  [[nodiscard]] std::string fault() const {
    return test::fault_of([&] { static_cast<void>(prepare()); });
  }

  Config config_;
};

TEST_F(PreparedHoldout, MakesTheVocabularyOfTheRestAlone) {
  const PreparedData data = prepare();
  const SplitCounts& train = data.at(Split::train).counts;
  const SplitCounts& valid = data.at(Split::valid).counts;
  EXPECT_EQ(train.lines + valid.lines, 300);
  EXPECT_NEAR(static_cast<double>(valid.lines), 30, 3);
  EXPECT_EQ(train.bytes + valid.bytes, std::ssize(text()));
  EXPECT_EQ(train.unknown, 0);
  EXPECT_EQ(valid.unknown, valid.lines);  // each line has a word of its own
  EXPECT_EQ(data.find(Split::test), std::nullopt);
}

TEST_F(PreparedHoldout, IsTheSameForAnyThreadsCompressedOrNotAndCached) {
  const PreparedData data = prepare();
  const PreparedData cached = prepare();
  EXPECT_EQ(cached.at(Split::valid).seconds, 0);
  EXPECT_EQ(cached.at(Split::train).seconds, 0);
  config_.train.threads = 3;
  config_.data.cache_dir = (dir_ / "other").string();
  config_.data.train = {file("train.xz", test::xz_made(text(), 1000)).string()};
  const PreparedData other = prepare();
  for (const Split split : {Split::train, Split::valid}) {
    EXPECT_EQ(other.at(split).stream.digest(), data.at(split).stream.digest());
    EXPECT_EQ(cached.at(split).stream.digest(), data.at(split).stream.digest());
    EXPECT_EQ(other.at(split).counts, data.at(split).counts);
  }
}

TEST_F(PreparedHoldout, HasCachesOfItsOwn) {
  const PreparedData parts = prepare();
  config_.data.holdout = 0.2;
  const PreparedData others = prepare();
  EXPECT_NE(others.at(Split::valid).stream.digest(), parts.at(Split::valid).stream.digest());
  config_.data.holdout = 0;
  const PreparedData whole = prepare();
  EXPECT_EQ(whole.at(Split::train).counts.lines, 300);
  EXPECT_EQ(whole.find(Split::valid), std::nullopt);
  config_.data.holdout = 0.1;
  EXPECT_EQ(prepare().at(Split::valid).seconds, 0);
  EXPECT_EQ(prepare().at(Split::train).stream.digest(), parts.at(Split::train).stream.digest());

  const CacheKey key{"t", "s", LineEnd::eos, false, {0.1, true}};
  CacheKey rest = key;
  rest.part.is_held_out = false;
  CacheKey none = key;
  none.part = {};
  EXPECT_NE(key.file_name("valid"), rest.file_name("valid"));
  EXPECT_NE(key.file_name("valid"), none.file_name("valid"));
}

TEST_F(PreparedHoldout, NeverActsBesideAValidText) {
  config_.data.valid = {file("valid.txt", "and so on\n").string()};
  const PreparedData data = prepare();
  EXPECT_EQ(data.at(Split::train).counts.lines, 300);
  EXPECT_EQ(data.at(Split::valid).counts.lines, 1);
}

TEST_F(PreparedHoldout, IsRefusedWhereAPartWouldBeEmpty) {
  config_.data.train = {file("short", "one\ntwo\nthree\n").string()};
  config_.data.holdout = 0.001;
  EXPECT_THAT(fault(), AllOf(HasSubstr("data.holdout: 0.001"), HasSubstr("no word for valid"),
                             HasSubstr("a larger share")));
  config_.data.holdout = 0.9999;
  EXPECT_THAT(fault(), AllOf(HasSubstr("data.holdout: 0.9999"), HasSubstr("no word to train on")));
}

}  // namespace
}  // namespace transnormer
