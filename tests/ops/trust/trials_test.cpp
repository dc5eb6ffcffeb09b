#include "ops/trust/trials.h"

#include <gtest/gtest.h>

#include <set>

#include "ops/activation.h"
#include "ops/reference.h"
#include "ops/runtime/device.h"
#include "ops/runtime/kernel_table.h"
#include "ops/trust/kernel_names.h"
#include "ops/trust/lying_kernels.h"

namespace transnormer::ops {
namespace {

const KernelTrial& trial_named(const std::string& kernel) {
  for (const KernelTrial& trial : kernel_trials()) {
    if (trial.kernel == kernel) {
      return trial;
    }
  }
  throw std::runtime_error("no trial of " + kernel);
}

std::set<std::string> kernel_names() {
  std::set<std::string> names;
  for_each_kernel([&](const char* name, auto) { names.insert(name); });
  return names;
}

TEST(Trials, AreOneForEachKernel) {
  EXPECT_EQ(kernel_names().size(), kKernelCount);
  std::set<std::string> tried;
  for (const KernelTrial& trial : kernel_trials()) {
    EXPECT_TRUE(tried.insert(trial.kernel).second) << trial.kernel;
  }
  EXPECT_EQ(tried, kernel_names());
}

TEST(Trials, FindEveryKernelOfThisProcessorInAgreement) {
  configure_threads(1, /*deterministic=*/false);
  for (const auto* const* set = kernels::all_kernels(); *set != nullptr; ++set) {
    for (const KernelTrial& trial : kernel_trials()) {
      EXPECT_EQ(disagreement(trial, **set, at::kCPU), "") << (*set)->name << " " << trial.kernel;
    }
  }
}

bool called = false;

// A kernel that its trial does not call would be trusted unseen.
TEST(Trials, CallTheKernelThatTheyAreNamedAfter) {
  const kernels::Kernels& honest = kernels::kernels();
  kernels::Kernels noting = honest;
  for_each_kernel([&](const std::string& name, auto member) {
    using Function = std::remove_reference_t<decltype(noting.*member)>;
    static Function original;
    original = honest.*member;
    noting.*member = []<typename... A>(void (*)(A...)) {
      return +[](A... arguments) {
        called = true;
        original(arguments...);
      };
    }(original);
    called = false;
    EXPECT_EQ(disagreement(trial_named(name), noting, at::kCPU), "") << name;
    EXPECT_TRUE(called) << name;
    noting.*member = honest.*member;
  });
}

TEST(Trials, TellWhatIsWrongAndBlameNoOther) {
  const auto blamed = [](const std::string& how) {
    std::set<std::string> names;
    const kernels::Kernels table = lying_kernels(how);
    for (const KernelTrial& trial : kernel_trials()) {
      if (!disagreement(trial, table, at::kCPU).empty()) {
        names.insert(trial.kernel);
      }
    }
    return names;
  };
  EXPECT_EQ(blamed("honest"), std::set<std::string>{});
  EXPECT_EQ(blamed("wrong"), std::set<std::string>{"srms_norm"});
  EXPECT_EQ(blamed("wrong_backward"), std::set<std::string>{"block_attention_backward"});
  EXPECT_EQ(blamed("nan"), std::set<std::string>{"cross_entropy"});
}

TEST(Trials, PutTheKernelsInUseBack) {
  const auto before = kernels_in_use(at::kCPU).gated;
  EXPECT_THROW((void)disagreement(trial_named("gated"), lying_kernels("throws"), at::kCPU),
               std::runtime_error);
  EXPECT_EQ(kernels_in_use(at::kCPU).gated, before);
}

TEST(KernelsInUse, LeaveTheirOperatorToLibTorchWhereOneIsMissing) {
  const at::Tensor x = normal({3, 40}, 1);
  kernels::Kernels table = lying_kernels("throws");
  const at::Tensor expected = gated(x, Activation::silu);
  {
    const KernelsGuard guard(at::kCPU, table);
    EXPECT_THROW((void)gated(x, Activation::silu), std::runtime_error);
  }
  table.gated = nullptr;
  const KernelsGuard guard(at::kCPU, table);
  EXPECT_LT(distance(gated(x, Activation::silu), expected), 1e-6);
}

}  // namespace
}  // namespace transnormer::ops
