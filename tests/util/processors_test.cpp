#include "util/processors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

#include "util/child.h"
#include "util/error.h"

namespace transnormer {
namespace {

TEST(Processors, AreThoseOfTheAffinity) {
  EXPECT_GE(processors(), 1);
  EXPECT_EQ(test::status_of_child([] {
              cpu_set_t mine;
              ::sched_getaffinity(0, sizeof mine, &mine);
              cpu_set_t first;
              CPU_ZERO(&first);
              for (int i = 0; CPU_COUNT(&first) == 0; ++i) {
                if (CPU_ISSET(i, &mine)) {
                  CPU_SET(i, &first);
                }
              }
              return ::sched_setaffinity(0, sizeof first, &first) == 0 ? processors() : 99;
            }),
            1);
}

TEST(AllowedProcessors, AreNoMoreThanTheEnvironmentAsksFor) {
  const auto with = [](const char* variable, const char* value) {
    return test::status_of_child([=] {
      ::unsetenv("OMP_NUM_THREADS");
      ::unsetenv("OMP_THREAD_LIMIT");
      ::setenv(variable, value, 1);
      return allowed_processors();
    });
  };
  for (const char* variable : {"OMP_NUM_THREADS", "OMP_THREAD_LIMIT"}) {
    EXPECT_EQ(with(variable, "1"), 1);
    EXPECT_EQ(with(variable, "1,8"), 1);
    for (const char* no_limit : {"", "0", "-1", "many", "1000000"}) {
      EXPECT_EQ(with(variable, no_limit), processors()) << no_limit;
    }
  }
}

TEST(UsefulThreads, AreNoMoreThanAllowed) {
  EXPECT_EQ(useful_threads(1), 1);
  EXPECT_EQ(useful_threads(0), allowed_processors());
  EXPECT_EQ(useful_threads(4096), allowed_processors());
}

TEST(RequiredThreads, AreRefusedInOneLineWhereTheSystemDoesNotGrantThem) {
  EXPECT_NO_THROW(require_threads(3));
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "a sanitizer needs address space without a limit";
#endif
  EXPECT_EQ(test::status_of_child([] {
              const struct rlimit few { .rlim_cur = 300 << 20, .rlim_max = 300 << 20 };
              if (::setrlimit(RLIMIT_AS, &few) != 0) {
                return 6;
              }
              try {
                require_threads(500);
              } catch (const UserError& error) {
                const std::string text = error.what();
                return text.starts_with("train.threads: 500") &&
                               text.find("ulimit -u") != std::string::npos
                           ? 5
                           : 6;
              }
              return 7;
            }),
            5);
}

}  // namespace
}  // namespace transnormer
