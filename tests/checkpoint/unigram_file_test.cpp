#include "checkpoint/unigram_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "checkpoint/fixture.h"

namespace transnormer {
namespace {

using ::testing::HasSubstr;

std::string fault_of(const std::string& bytes) {
  return test::user_error_of([&] { (void)unigram_from_bytes(bytes, "unigram.bin"); });
}

TEST(UnigramFile, ComesBackAsWritten) {
  const std::vector<std::int64_t> counts{0, 1, std::int64_t{1} << 40, 255};
  EXPECT_EQ(unigram_from_bytes(unigram_to_bytes(counts), "unigram.bin"), counts);
  EXPECT_TRUE(unigram_from_bytes(unigram_to_bytes({}), "unigram.bin").empty());
}

TEST(UnigramFile, HasTheLayoutThatItsHeaderStates) {
  const std::string expected("TNUNIGRM\1\0\0\0\0\0\0\0\1\0\0\0\0\0\0\0\2\1\0\0\0\0\0\0", 32);
  EXPECT_EQ(unigram_to_bytes({258}), expected);
}

TEST(UnigramFile, CutForeignOrNewerIsRefused) {
  const std::string whole = unigram_to_bytes({1, 2, 3});
  for (std::size_t size = 0; size < whole.size(); ++size) {
    EXPECT_THAT(fault_of(whole.substr(0, size)), HasSubstr("unigram.bin: ")) << size;
  }
  EXPECT_THAT(fault_of(whole + "12345678"), HasSubstr("damaged"));
  std::string foreign = whole;
  foreign[0] = 'X';
  EXPECT_THAT(fault_of(foreign), HasSubstr("not a file of token counts"));
  std::string newer = whole;
  newer[8] = 2;
  EXPECT_THAT(fault_of(newer), HasSubstr("version 2"));
}

TEST(UnigramFile, WithNumbersThatAreNoCountsIsRefused) {
  EXPECT_THAT(fault_of(unigram_to_bytes({1, -1})), HasSubstr("no count"));
  EXPECT_THAT(fault_of(unigram_to_bytes({INT64_MAX, 1})), HasSubstr("no count"));
}

}  // namespace
}  // namespace transnormer
