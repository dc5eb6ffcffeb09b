#include "dist/group.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "dist/threads.h"

namespace transnormer::dist {
namespace {

TEST(Group, OfOneLeavesEverythingAsItIs) {
  const Group group;
  const at::Tensor x = at::tensor({1.0, 2.0, 3.0});
  group.sum(x);
  group.begin_sum_to(x, 0).wait();
  group.share_parts(x);
  group.broadcast(x, 0);
  group.meet();
  EXPECT_TRUE(at::equal(x, at::tensor({1.0, 2.0, 3.0})));
  const at::Tensor collected = at::zeros({3}, at::kDouble);
  group.collect_parts(x, 3, collected);
  EXPECT_TRUE(at::equal(collected, x));
  EXPECT_TRUE(at::equal(group.gather(x), x.unsqueeze(0)));
  EXPECT_EQ(group.broadcast("text", 0), "text");
  EXPECT_EQ(group.gather("text"), std::vector<std::string>{"text"});
  EXPECT_EQ(group.waited_seconds(), 0);
}

TEST(Group, SumsOverAll) {
  with_group(3, [](const Group& group) {
    const at::Tensor x = at::full({5}, static_cast<double>(group.rank() + 1));
    group.sum(x);
    EXPECT_TRUE(at::equal(x, at::full({5}, 6.0)));
    std::vector<double> numbers{1, static_cast<double>(group.rank())};
    group.sum(numbers);
    EXPECT_EQ(numbers, (std::vector<double>{3, 3}));
  });
}

TEST(Group, PartsCoverAVectorWithoutOverlap) {
  for (const int elements : {0, 1, 15, 16, 17, 40, 100, 1000}) {
    with_group(3, [elements](const Group& group) {
      std::int64_t end = 0;
      for (int rank = 0; rank < 3; ++rank) {
        const Group::Part part = group.part_of(elements, rank);
        EXPECT_EQ(part.begin, end);
        EXPECT_GE(part.end, part.begin);
        end = part.end;
      }
      EXPECT_EQ(end, elements);
    });
  }
}

TEST(Group, SumsToOneAndSharesAndCollectsParts) {
  with_group(3, [](const Group& group) {
    const at::Tensor x = at::arange(6, at::kFloat) * (group.rank() + 1);
    group.begin_sum_to(x, 1).wait();
    if (group.rank() == 1) {
      EXPECT_TRUE(at::equal(x, at::arange(6, at::kFloat) * 6));
    }
    const at::Tensor mine = at::full({40}, -1.0);
    const Group::Part part = group.own_part_of(40);
    mine.slice(0, part.begin, part.end).fill_(group.rank() + 1);
    at::Tensor expected = at::empty({40});
    expected.slice(0, 0, 16).fill_(1);
    expected.slice(0, 16, 32).fill_(2);
    expected.slice(0, 32).fill_(3);
    const at::Tensor whole = at::zeros({40});
    group.collect_parts(mine.slice(0, part.begin, part.end), 40, whole);
    EXPECT_TRUE(at::equal(whole, group.rank() == 0 ? expected : at::zeros({40})));
    group.share_parts(mine);
    EXPECT_TRUE(at::equal(mine, expected));
  });
}

TEST(Group, GathersRowsOfDifferentNumbersAndTexts) {
  with_group(3, [](const Group& group) {
    const at::Tensor mine = at::full({group.rank(), 2}, group.rank(), at::kLong);
    const std::vector<at::Tensor> all = group.gather_rows(mine);
    ASSERT_EQ(all.size(), 3U);
    for (int rank = 0; rank < 3; ++rank) {
      EXPECT_TRUE(
          at::equal(all[static_cast<std::size_t>(rank)], at::full({rank, 2}, rank, at::kLong)));
    }
    EXPECT_EQ(group.gather(std::string(static_cast<std::size_t>(group.rank()), 'a')),
              (std::vector<std::string>{"", "a", "aa"}));
    EXPECT_EQ(group.broadcast(group.rank() == 1 ? "of one" : "", 1), "of one");
  });
}

}  // namespace
}  // namespace transnormer::dist
