#include "ops/trust/trust.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <utility>

#include "log/console.h"
#include "ops/runtime/kernel_table.h"
#include "ops/trust/lying_kernels.h"
#include "ops/trust/trial_process.h"
#include "util/temporary_directory.h"

namespace transnormer::ops {
namespace {

using testing::HasSubstr;

std::size_t count_of(const std::string& text, const std::string& part) {
  std::size_t count = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) {
    ++count;
  }
  return count;
}

class Trust : public testing::Test {
 protected:
  // What is trusted of kernels that lie so, and what was said about it on stderr.
  kernels::Kernels trusted(const std::string& how, const TrialLimits& limits = {}) {
    const TrustQuestion question{
        .key = VerdictKey{"a GPU", "a driver", how}, .folders = {directory.path()}, .judge = [&] {
          ++trials;
          return judge(trial_of(how), limits);
        }};
    testing::internal::CaptureStderr();
    const kernels::Kernels result = trusted_kernels(lying_kernels(how), question);
    said = testing::internal::GetCapturedStderr();
    return result;
  }

  test::TemporaryDirectory directory;
  int trials = 0;
  std::string said;
};

TEST_F(Trust, KeepsAllKernelsThatAgreeAndSaysNothing) {
  const kernels::Kernels table = trusted("honest");
  EXPECT_EQ(table.gated, kernels::kernels().gated);
  EXPECT_EQ(table.cross_entropy, kernels::kernels().cross_entropy);
  EXPECT_EQ(said, "");
}

TEST_F(Trust, LeavesOutOneThatLiesWithOneWarningThatNamesIt) {
  for (const auto& [how, kernel] : {std::pair{"wrong", "srms_norm: its results in Float differ"},
                                    std::pair{"crashes", "dropout: the process that tried it"},
                                    std::pair{"nan", "cross_entropy: "}}) {
    const kernels::Kernels table = trusted(how);
    EXPECT_EQ(table.srms_norm == nullptr, std::string(how) == "wrong");
    EXPECT_EQ(table.dropout == nullptr, std::string(how) == "crashes");
    EXPECT_EQ(table.cross_entropy == nullptr, std::string(how) == "nan");
    EXPECT_NE(table.gated, nullptr);
    EXPECT_THAT(said, HasSubstr(kernel));
    EXPECT_EQ(count_of(said, "\n"), 1U) << said;
  }
}

TEST_F(Trust, TriesOnceAndRemembersAlsoForTheWarning) {
  EXPECT_EQ(trusted("wrong").srms_norm, nullptr);
  EXPECT_EQ(trusted("wrong").srms_norm, nullptr);
  EXPECT_THAT(said, HasSubstr("srms_norm"));
  EXPECT_EQ(trials, 1);
  EXPECT_NE(trusted("honest").srms_norm, nullptr);  // another build
  EXPECT_EQ(trials, 2);
}

TEST_F(Trust, RemembersAKernelThatCrashes) {
  EXPECT_EQ(trusted("crashes").dropout, nullptr);
  EXPECT_EQ(trusted("crashes").dropout, nullptr);
  EXPECT_THAT(said, HasSubstr("was ended by signal 6"));
  EXPECT_EQ(trials, 1);
}

TEST_F(Trust, KeepsNoVerdictThatMayHaveComeOfTheMoment) {
  TrialLimits limits;
  for (const auto& [how, fault] :
       {std::pair{"out of memory", "gated: it fails: CUDA out of memory"},
        std::pair{"killed", "dropout: the process that tried it was ended by signal 9"},
        std::pair{"hangs", "feature: it gives no results"}}) {
    if (std::string(how) == "hangs") {
      limits.trial = std::chrono::milliseconds(1500);
    }
    trials = 0;
    for (int start = 1; start <= 2; ++start) {
      const kernels::Kernels table = trusted(how, limits);
      EXPECT_EQ(table.gated == nullptr, std::string(how) == "out of memory");
      EXPECT_EQ(table.dropout == nullptr, std::string(how) == "killed");
      EXPECT_EQ(table.feature == nullptr, std::string(how) == "hangs");
      EXPECT_THAT(said, HasSubstr(fault));
      EXPECT_THAT(said, HasSubstr("tried again at the next start"));
      EXPECT_EQ(count_of(said, "\n"), 1U) << said;
      EXPECT_EQ(trials, start);
    }
    EXPECT_TRUE(std::filesystem::is_empty(directory.path())) << how;
  }
}

TEST_F(Trust, TrustsNoneWhereNothingCouldBeTriedAndTriesAgainNextTime) {
  for (int start = 1; start <= 2; ++start) {
    const kernels::Kernels table = trusted("never ready");
    EXPECT_EQ(table.gated, nullptr);
    EXPECT_EQ(table.cross_entropy, nullptr);
    EXPECT_THAT(said, HasSubstr("could not be tried"));
    EXPECT_EQ(trials, start);
  }
}

TEST_F(Trust, DescribesARunByTheKernelsThatItUses) {
  const std::string best = kernels::kernels().name;
  EXPECT_EQ(describe_kernels(at::kCPU), best);
  kernels::Kernels table = kernels::kernels();
  table.dropout = nullptr;
  table.feature = nullptr;
  {
    const KernelsGuard guard(at::kCPU, table);
    EXPECT_EQ(describe_kernels(at::kCPU), best + " without feature, dropout");
  }
  const KernelsGuard guard(at::kCPU, {});
  EXPECT_EQ(describe_kernels(at::kCPU), "of LibTorch");
}

TEST(KernelTrial, IsStartedByTheCommandThatMainAsksFor) {
  std::string program = "transnormer", command = kKernelTrial, number = "3", other = "train";
  char* trial[] = {program.data(), command.data(), number.data(), nullptr};
  char* train[] = {program.data(), other.data(), number.data(), nullptr};
  EXPECT_FALSE(kernel_trials_possible());  // no main has asked
  EXPECT_FALSE(is_kernel_trial(3, train));
  EXPECT_TRUE(kernel_trials_possible());
  EXPECT_TRUE(is_kernel_trial(3, trial));
  EXPECT_FALSE(kernel_trials_possible());  // or trials would start trials without end
}

}  // namespace
}  // namespace transnormer::ops
