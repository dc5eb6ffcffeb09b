#include "util/compression.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "util/compressed.h"
#include "util/error.h"

namespace transnormer {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::StartsWith;

std::string some_text(int lines) {
  std::string text;
  for (int i = 0; i < lines; ++i) {
    text += "line " + std::to_string(i * 7919 % 1000) + " of a text\n";
  }
  return text;
}

// All of it, given in pieces of these sizes.
std::string decoded(Compression kind, std::string_view bytes, std::size_t input_size = 1000,
                    std::size_t output_size = 4096) {
  Decompressor decompressor(kind, "x");
  std::string text;
  std::string piece(output_size, '\0');
  while (true) {
    std::string_view input = bytes.substr(0, input_size);
    bytes.remove_prefix(input.size());
    const bool is_last = input.empty();
    while (true) {
      const std::size_t size = decompressor.decode(input, is_last, piece);
      text += piece.substr(0, size);
      if (size == 0) {
        break;
      }
    }
    EXPECT_TRUE(input.empty());
    if (is_last) {
      return text;
    }
  }
}

std::string fault_of(Compression kind, std::string_view bytes, std::size_t input_size = 1000) {
  try {
    static_cast<void>(decoded(kind, bytes, input_size));
  } catch (const UserError& error) {
    return error.what();
  }
  return "none";
}

class Compressions : public testing::TestWithParam<Compression> {
 protected:
  [[nodiscard]] static std::string made(std::string_view text) {
    return test::compressed(GetParam(), text);
  }
};

TEST_P(Compressions, AreToldByTheirBeginning) {
  const std::string bytes = made("a");
  EXPECT_EQ(compression_of(bytes), GetParam());
  EXPECT_EQ(compression_of(bytes.substr(1)), Compression::none);
  EXPECT_EQ(compression_of("a text"), Compression::none);
  EXPECT_EQ(compression_of(""), Compression::none);
}

TEST_P(Compressions, AreReadInPiecesOfAnySize) {
  const std::string text = some_text(20000);
  const std::string bytes = made(text);
  EXPECT_LT(bytes.size(), text.size() / 2);
  for (const std::size_t input_size : {std::size_t{1}, std::size_t{100}, bytes.size()}) {
    for (const std::size_t output_size : {std::size_t{7}, std::size_t{1} << 20}) {
      EXPECT_TRUE(decoded(GetParam(), bytes, input_size, output_size) == text);
    }
  }
}

TEST_P(Compressions, AreReadOneAfterAnotherEmptyOnesToo) {
  const std::string bytes = made("") + made("one\n") + made("") + made("two\n") + made("");
  for (const std::size_t input_size : {1, 5, 1000}) {
    EXPECT_EQ(decoded(GetParam(), bytes, input_size), "one\ntwo\n");
  }
  EXPECT_EQ(decoded(GetParam(), made("")), "");
}

TEST_P(Compressions, AreNeverReadShortWhereTheyAreCut) {
  const std::string first = made(some_text(200));
  const std::string bytes = first + made("the end\n");
  for (std::size_t size = 1; size < bytes.size(); ++size) {
    for (const std::size_t input_size : {std::size_t{1}, bytes.size()}) {
      const std::string fault = fault_of(GetParam(), bytes.substr(0, size), input_size);
      if (size == first.size()) {
        EXPECT_EQ(fault, "none");
      } else if (size > first.size() && size < first.size() + kMagicBytes) {
        EXPECT_THAT(fault, AllOf(StartsWith("x: "), testing::Ne("none"))) << size;
      } else {
        EXPECT_THAT(fault, StartsWith("x: is cut off")) << size;
      }
    }
  }
}

TEST_P(Compressions, AreNeverReadAsAnotherTextWhereABitIsFlipped) {
  const std::string text = some_text(30);
  const std::string bytes = made(text) + made(text);
  int refused = 0;
  for (std::size_t bit = 0; bit < 8 * bytes.size(); ++bit) {
    std::string damaged = bytes;
    damaged[bit / 8] = static_cast<char>(damaged[bit / 8] ^ (1 << (bit % 8)));
    if (compression_of(damaged) != GetParam()) {
      continue;
    }
    try {
      // Bits that say nothing of the text: the time and the system in a header of gzip.
      EXPECT_EQ(decoded(GetParam(), damaged), text + text) << "bit " << bit;
    } catch (const UserError& error) {
      EXPECT_THAT(error.what(), StartsWith("x: ")) << "bit " << bit;
      ++refused;
    }
  }
  EXPECT_GT(refused, std::ssize(bytes) * 8 * 3 / 4);
}

TEST_P(Compressions, RefuseWhatStandsBehindThem) {
  const std::string bytes = made("one\n");
  for (const char* more : {"x", "more text\n", "\x1F\x8C", "PK"}) {
    EXPECT_THAT(fault_of(GetParam(), bytes + more),
                AllOf(StartsWith("x: holds something else behind its"),
                      HasSubstr("from byte " + std::to_string(bytes.size()) + " on")));
  }
}

INSTANTIATE_TEST_SUITE_P(Of, Compressions,
                         testing::Values(Compression::gzip, Compression::xz, Compression::zstd),
                         [](const auto& kind) { return std::string(to_string(kind.param)); });

TEST(Padding, OfZerosMayFollowGzipAtTheEndOnly) {
  const std::string bytes = test::gzipped("one\n");
  EXPECT_EQ(decoded(Compression::gzip, bytes + std::string(513, '\0')), "one\n");
  EXPECT_THAT(fault_of(Compression::gzip, bytes + std::string(9, '\0') + bytes),
              HasSubstr("something else"));
  EXPECT_THAT(fault_of(Compression::gzip, bytes + std::string(9, '\0') + "x"),
              HasSubstr("something else"));
}

TEST(Padding, OfXzComesInFours) {
  const std::string bytes = test::xz_made("one\n");
  const std::string pad(8, '\0');
  EXPECT_EQ(decoded(Compression::xz, bytes + pad, 1), "one\n");
  EXPECT_EQ(decoded(Compression::xz, bytes + pad + bytes + pad), "one\none\n");
  EXPECT_THAT(fault_of(Compression::xz, bytes + pad + '\0'), HasSubstr("comes in fours"));
  EXPECT_THAT(fault_of(Compression::xz, bytes + '\0' + bytes), HasSubstr("something else"));
}

TEST(Padding, OfZstdThereIsNone) {
  EXPECT_THAT(fault_of(Compression::zstd, test::zstd_made("one\n") + std::string(4, '\0')),
              HasSubstr("something else"));
}

TEST(Compressed, BySeveralThreadsIsReadWhole) {
  const std::string text = some_text(100000);
  EXPECT_TRUE(decoded(Compression::xz, test::xz_made(text, 65536)) == text);
  EXPECT_TRUE(decoded(Compression::zstd, test::zstd_made(text, 2)) == text);
}

TEST(Compressed, MayHoldFramesOfZstdThatAreNoText) {
  const std::string skippable("\x51\x2A\x4D\x18\x03\0\0\0abc", 11);
  const std::string bytes = skippable + test::zstd_made("one\n") + skippable;
  EXPECT_EQ(compression_of(bytes), Compression::zstd);
  EXPECT_EQ(decoded(Compression::zstd, bytes, 1), "one\n");
}

TEST(Windows, BeyondTheLimitAreRefusedBeforeMemoryIsTaken) {
  const std::string frame("\x28\xB5\x2F\xFD\0\xA8\x01\0\0", 9);  // 2 GiB, an empty block
  EXPECT_THAT(fault_of(Compression::zstd, frame),
              AllOf(HasSubstr("wants a window above the limit of 512"), HasSubstr("zstd --ultra")));
  std::string stream = test::xz_made("one\n");
  const std::size_t header = 12;
  const std::size_t size = (static_cast<std::size_t>(stream[header]) + 1) * 4;
  stream[header + 4] = 38;  // of the dictionary: 2 GiB
  const std::uint32_t check =
      lzma_crc32(reinterpret_cast<const std::uint8_t*>(stream.data()) + header, size - 4, 0);
  for (std::size_t i = 0; i < 4; ++i) {
    stream[header + size - 4 + i] = static_cast<char>(check >> (8 * i));
  }
  EXPECT_THAT(fault_of(Compression::xz, stream),
              AllOf(HasSubstr("wants a window of 2"), HasSubstr("above the limit of 512"),
                    HasSubstr("xz -9")));
}

TEST(CutMagic, IsToldFromAText) {
  EXPECT_TRUE(is_cut_magic("", "a.gz"));
  EXPECT_TRUE(is_cut_magic("\x1F", "a.txt"));
  EXPECT_TRUE(
      is_cut_magic("\xFD"
                   "7z",
                   "a"));
  EXPECT_TRUE(is_cut_magic("(", "a.zst"));
  EXPECT_TRUE(is_cut_magic("(\xB5", "a"));
  EXPECT_FALSE(is_cut_magic("(", "a.txt"));
  EXPECT_FALSE(is_cut_magic("", "a.txt"));
  EXPECT_FALSE(is_cut_magic("text", "a.gz"));
}

}  // namespace
}  // namespace transnormer
