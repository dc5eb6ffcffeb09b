#include "data/text_input.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <thread>

#include "data/support.h"
#include "data/text_reader.h"
#include "util/compressed.h"

namespace transnormer {
namespace {

using testing::AllOf;
using testing::HasSubstr;

const std::vector<Compression> kKinds{Compression::gzip, Compression::xz, Compression::zstd};

class TextInputTest : public testing::Test {
 protected:
  std::filesystem::path file(const std::string& name, const std::string& bytes) const {
    test::put(dir_ / name, bytes);
    return dir_ / name;
  }
  static std::string read_all(const std::filesystem::path& path, std::size_t piece_size = 1000) {
    TextInput input(path);
    std::string text;
    std::string piece(piece_size, '\0');
    while (const std::size_t size = input.read(piece)) {
      text += piece.substr(0, size);
    }
    return text;
  }
  // Both ends in this process: what is written to a pipe while it is read.
  static void feed(const std::filesystem::path& pipe, const std::string& bytes) {
    const int descriptor = ::open(pipe.c_str(), O_WRONLY);
    for (const char byte : bytes) {  // the reader gets them one by one, or many at once
      EXPECT_EQ(::write(descriptor, &byte, 1), 1);
    }
    ::close(descriptor);
  }

  test::TemporaryDirectory dir_;
};

TEST_F(TextInputTest, TellsCompressedTextsByTheirContentNotTheirName) {
  for (const Compression kind : kKinds) {
    EXPECT_EQ(read_all(file("text.txt", test::compressed(kind, "one\ntwo\n")), 3), "one\ntwo\n");
    EXPECT_EQ(read_all(file(std::string("text") + test::ending_of(kind), "a plain one\n")),
              "a plain one\n");
  }
}

TEST_F(TextInputTest, NamesTheFileThatIsCutWhereverThatIs) {
  for (const Compression kind : kKinds) {
    const std::string bytes = test::compressed(kind, "one\ntwo\n");
    for (std::size_t size = 0; size < bytes.size(); ++size) {
      const auto path = file(std::string("cut") + test::ending_of(kind), bytes.substr(0, size));
      EXPECT_THAT(test::fault_of([&] { static_cast<void>(read_all(path)); }),
                  testing::StartsWith(path.string() + ": is cut off"))
          << size;
    }
  }
}

TEST_F(TextInputTest, ReadsPipesCompressedOnesToo) {
  const auto pipe = dir_ / "pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_TRUE(is_read_once(pipe));
  EXPECT_TRUE(is_read_once("-"));
  EXPECT_TRUE(is_read_once("/dev/null"));
  EXPECT_FALSE(is_read_once(file("a", "")));
  EXPECT_FALSE(is_read_once(dir_.path()));
  EXPECT_FALSE(is_read_once(dir_ / "none"));
  for (const Compression kind :
       {Compression::none, Compression::gzip, Compression::xz, Compression::zstd}) {
    std::jthread writer([&] { feed(pipe, test::compressed(kind, "one\ntwo\n")); });
    EXPECT_EQ(read_all(pipe), "one\ntwo\n");
  }
}

TEST_F(TextInputTest, CountsWhatItReadOfTheFile) {
  std::string text;
  for (int i = 0; i < 100000; ++i) {
    text += "line " + std::to_string(i) + '\n';
  }
  const std::string bytes = test::gzipped(text);
  TextReader reader({.files = {file("text.gz", bytes)}}, 4096);
  std::int64_t before = 0;
  for (TextChunk chunk; reader.next(chunk);) {
    EXPECT_GE(reader.source_bytes(), before);
    before = reader.source_bytes();
  }
  EXPECT_EQ(reader.source_bytes(), std::ssize(bytes));
}

TEST_F(TextInputTest, ReadsAWholeShortTextAsItStands) {
  EXPECT_EQ(read_text(file("a.zst", test::zstd_made("\xEF\xBB\xBFone\r\ntwo"))),
            "\xEF\xBB\xBFone\r\ntwo");
  EXPECT_THAT(test::fault_of([&] {
                static_cast<void>(read_text(file("b.gz", test::gzipped(std::string("a\0", 2)))));
              }),
              AllOf(HasSubstr("b.gz: is not text: a NUL byte at offset 1")));
}

TEST_F(TextInputTest, HasAllRulesOfPlainText) {
  const std::string text = "\xEF\xBB\xBFone\r\ncaf\xE9\r\nlast";
  for (const Compression kind : kKinds) {
    TextReader reader({.files = {file("text", test::compressed(kind, text))}, .strip_cr = true}, 4);
    std::string joined;
    for (TextChunk chunk; reader.next(chunk);) {
      joined += chunk.text;
    }
    EXPECT_EQ(joined, "one\ncaf\xE9\nlast");
    EXPECT_EQ(reader.findings(), (TextFindings{.dropped_carriage_returns = 2,
                                               .invalid_bytes = 1,
                                               .invalid_file = 0,
                                               .invalid_line = 2}));
  }
}

}  // namespace
}  // namespace transnormer
