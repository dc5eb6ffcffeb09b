#include "data/text_reader.h"

#include <pthread.h>

#include <atomic>
#include <system_error>
#include <thread>

#include "data/parallel_text.h"
#include "data/support.h"

namespace transnormer {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class TextReaderTest : public testing::Test {
 protected:
  std::filesystem::path file(const std::string& name, const std::string& text) const {
    test::put(dir_ / name, text);
    return dir_ / name;
  }
  static std::vector<std::string> chunks(const std::vector<std::filesystem::path>& files,
                                         std::size_t chunk_bytes, bool strip_cr = false) {
    TextReader reader(TextSource{files, strip_cr}, chunk_bytes);
    std::vector<std::string> all;
    for (TextChunk chunk; reader.next(chunk);) {
      EXPECT_EQ(chunk.number, static_cast<std::int64_t>(all.size()));
      all.push_back(chunk.text);
    }
    return all;
  }

  test::TemporaryDirectory dir_;
};

TEST_F(TextReaderTest, CutsBetweenLinesOnly) {
  EXPECT_THAT(chunks({file("a", "one\ntwo\nthree\nfour\n")}, 9),
              ElementsAre("one\ntwo\n", "three\n", "four\n"));
}

TEST_F(TextReaderTest, EndsALineWithItsFile) {
  EXPECT_THAT(chunks({file("a", "one\ntw"), file("b", ""), file("c", "o\n")}, 100),
              ElementsAre("one\n", "tw", "o\n"));
}

TEST_F(TextReaderTest, TakesLinesLongerThanAChunkWhole) {
  const std::string line(1000, 'x');
  EXPECT_THAT(chunks({file("a", "a\n" + line + "\n\nb")}, 7),
              ElementsAre("a\n", line + "\n\n", "b"));
}

TEST_F(TextReaderTest, CutsBeforeWhiteSpaceWhereAsked) {
  const std::string mark = "\xEF\xBB\xBF";
  TextReader reader(TextSource{{file("a", mark + " one two\n\nthree\r\nfour\r\n"),
                                file("b", "x\ty"), file("c", "")},
                               true},
                    6, TextCut::white_space);
  std::vector<std::string> texts;
  std::vector<bool> continues;
  std::vector<bool> goes_on;
  for (TextChunk chunk; reader.next(chunk);) {
    texts.push_back(chunk.text);
    continues.push_back(chunk.continues_line);
    goes_on.push_back(chunk.line_goes_on);
  }
  EXPECT_THAT(texts, ElementsAre(" one two", "\n\nthree", "\nfour", "\n", "x\ty"));
  EXPECT_THAT(continues, ElementsAre(false, true, true, true, false));
  EXPECT_THAT(goes_on, ElementsAre(true, true, true, false, false));
}

TEST_F(TextReaderTest, RefusesNulBytesAndSaysWhere) {
  const auto path = file("a", "one\ntwo\n" + std::string("x\0y\n", 4));
  EXPECT_THAT(test::fault_of([&] { static_cast<void>(chunks({path}, 5)); }),
              HasSubstr("is not text: a NUL byte at offset 9"));
}

TEST_F(TextReaderTest, RefusesAMissingFile) {
  EXPECT_THAT(test::fault_of([&] { static_cast<void>(chunks({dir_ / "none"}, 5)); }),
              HasSubstr("none: cannot be read"));
}

TEST_F(TextReaderTest, DropsTheByteOrderMarkOfEachFile) {
  const std::string mark = "\xEF\xBB\xBF";
  for (const std::size_t chunk_bytes : {std::size_t{1}, std::size_t{100}}) {
    const auto all = chunks(
        {file("a", mark + "one\n" + mark + "two"), file("b", mark), file("c", mark + "three\n")},
        chunk_bytes);
    std::string joined;
    for (const std::string& chunk : all) {
      joined += chunk;
    }
    EXPECT_EQ(joined, "one\n" + mark + "twothree\n");
  }
}

TEST_F(TextReaderTest, DropsCarriageReturnsAtLineEndsWhereAsked) {
  const auto path = file("a", "o\rne\r\n\r\ntwo\r\r\nend\r");
  for (const std::size_t chunk_bytes : {std::size_t{1}, std::size_t{100}}) {
    std::string joined;
    for (const std::string& chunk : chunks({path}, chunk_bytes, true)) {
      joined += chunk;
    }
    EXPECT_EQ(joined, "o\rne\n\ntwo\r\nend");
  }
}

TEST_F(TextReaderTest, CountsWhatATextShouldNotHold) {
  const auto good = file("good", "caf\xC3\xA9 \xF0\x9F\x99\x82\n");
  const auto bad = file("bad", "one\r\ntwo\ncaf\xE9 \xFF\r\ncut \xE2\x96");
  for (const bool strip_cr : {false, true}) {
    TextReader reader(TextSource{{good, bad}, strip_cr}, 7);
    for (TextChunk chunk; reader.next(chunk);) {
    }
    EXPECT_EQ(reader.findings(), (TextFindings{.carriage_returns = strip_cr ? 0 : 2,
                                               .dropped_carriage_returns = strip_cr ? 2 : 0,
                                               .invalid_bytes = 4,
                                               .invalid_file = 1,
                                               .invalid_line = 3}));
    EXPECT_EQ(reader.source_bytes(), 11 + 23);
  }
}

TEST_F(TextReaderTest, IsConsumedInOrderHoweverManyThreadsWork) {
  std::string text;
  for (int i = 0; i < 5000; ++i) {
    text += std::to_string(i) + '\n';
  }
  TextReader reader(TextSource{{file("a", text)}}, 64);
  std::string joined;
  std::atomic<int> busy = 0;
  for_each_chunk(
      reader, 4, [](int, const TextChunk& chunk) { return chunk.text; },
      [&](std::string chunk) {
        EXPECT_EQ(++busy, 1);
        joined += chunk;
        --busy;
      });
  EXPECT_EQ(joined, text);
}

TEST_F(TextReaderTest, IsConsumedWhereTheSystemGrantsNoFurtherThread) {
  pthread_attr_t usual;
  ASSERT_EQ(pthread_getattr_default_np(&usual), 0);
  pthread_attr_t impossible = usual;
  pthread_attr_setstacksize(&impossible, std::size_t{1} << 52);  // more than there are addresses
  ASSERT_EQ(pthread_setattr_default_np(&impossible), 0);
  EXPECT_THROW(std::thread([] {}), std::system_error);
  TextReader reader(TextSource{{file("a", "one\ntwo\nthree\n")}}, 4);
  std::string joined;
  for_each_chunk(
      reader, 4, [](int, const TextChunk& chunk) { return chunk.text; },
      [&](const std::string& chunk) { joined += chunk; });
  EXPECT_EQ(joined, "one\ntwo\nthree\n");
  pthread_setattr_default_np(&usual);
}

TEST_F(TextReaderTest, StopsAllThreadsAtTheFirstFailure) {
  TextReader reader(TextSource{{file("a", std::string(10000, '\n'))}}, 16);
  const auto run = [&] {
    for_each_chunk(
        reader, 4, [](int, const TextChunk&) -> int { throw UserError("the work failed"); },
        [](int) {});
  };
  EXPECT_EQ(test::fault_of(run), "the work failed");
}

}  // namespace
}  // namespace transnormer
