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
  group.begin_sum_of_parts(x).wait();
  group.begin_gathering_parts(x).wait();
  group.broadcast(x, 0);
  group.meet();
  EXPECT_TRUE(at::equal(x, at::tensor({1.0, 2.0, 3.0})));
  EXPECT_TRUE(at::equal(group.part_of(x), x));
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

TEST(Group, SumsAndGathersParts) {
  with_group(2, [](const Group& group) {
    const at::Tensor x = at::arange(6, at::kFloat) * (group.rank() + 1);
    group.begin_sum_of_parts(x).wait();
    const at::Tensor whole = at::arange(6, at::kFloat) * 3;
    EXPECT_TRUE(at::equal(group.part_of(x), group.part_of(whole)));
    at::Tensor mine = at::zeros({6});
    group.part_of(mine).fill_(group.rank() + 1);
    group.begin_gathering_parts(mine).wait();
    EXPECT_TRUE(at::equal(mine, at::tensor({1.0F, 1.0F, 1.0F, 2.0F, 2.0F, 2.0F})));
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
