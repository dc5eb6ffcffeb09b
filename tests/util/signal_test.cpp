#include "util/signal.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <functional>
#include <optional>

namespace transnormer {
namespace {

// Status of a child process that starts as the program does and runs `body`; -1 where a signal
// killed it.
int status_of(const std::function<int()>& body) {
  const pid_t child = ::fork();
  if (child == 0) {
    outlive_refused_writes();
    install_signal_handlers();
    ::_exit(body());
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

int stop_status() {
  const auto stop = stop_requested();
  return stop ? static_cast<int>(*stop) : 0;
}

TEST(Signals, AskForNothingUntilTheyCome) {
  EXPECT_EQ(status_of([] { return stop_status() + (take_save_request() ? 1 : 0); }), 0);
}

TEST(Signals, InterruptAsksForAStopWithStatus130) {
  EXPECT_EQ(status_of([] {
              ::raise(SIGINT);
              return stop_status();
            }),
            130);
}

TEST(Signals, TerminateAsksForAStopWithStatus143) {
  EXPECT_EQ(status_of([] {
              ::raise(SIGTERM);
              return stop_status();
            }),
            143);
}

TEST(Signals, ASecondInterruptStopsAtOnce) {
  EXPECT_EQ(status_of([] {
              ::raise(SIGINT);
              ::raise(SIGINT);
              return 7;  // not reached
            }),
            130);
}

TEST(Signals, AnInterruptAfterTerminateStillLetsTheSaveFinish) {
  EXPECT_EQ(status_of([] {
              ::raise(SIGTERM);
              ::raise(SIGINT);
              return 7;
            }),
            7);
}

TEST(Signals, UserSignalAsksForOneSaveAndNoStop) {
  EXPECT_EQ(status_of([] {
              ::raise(SIGUSR1);
              ::raise(SIGUSR1);
              const bool first = take_save_request();
              const bool second = take_save_request();
              return (first ? 1 : 0) + (second ? 2 : 0) + stop_status();
            }),
            1);
}

TEST(Signals, AClosedPipeFailsToBeWrittenAndEndsNothing) {
  EXPECT_EQ(status_of([] {
              int ends[2];
              if (::pipe(ends) != 0) {
                return 6;
              }
              ::close(ends[0]);
              return ::write(ends[1], "x", 1) == -1 && errno == EPIPE ? 5 : 6;
            }),
            5);
}

TEST(Signals, AFileBeyondTheLimitFailsToBeWrittenAndEndsNothing) {
  EXPECT_EQ(status_of([] {
              const struct rlimit none { .rlim_cur = 0, .rlim_max = RLIM_INFINITY };
              FILE* const file = std::tmpfile();
              if (file == nullptr || ::setrlimit(RLIMIT_FSIZE, &none) != 0) {
                return 6;
              }
              return ::write(::fileno(file), "x", 1) == -1 && errno == EFBIG ? 5 : 6;
            }),
            5);
}

TEST(Signals, DoNotInterruptReads) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  EXPECT_EQ(status_of([&ends] {
              const pid_t parent = ::getpid();
              const pid_t helper = ::fork();
              if (helper == 0) {
                ::kill(parent, SIGUSR1);
                const bool sent = ::write(ends[1], "x", 1) == 1;
                ::_exit(sent ? 0 : 1);
              }
              char byte = 0;
              const bool got = ::read(ends[0], &byte, 1) == 1 && byte == 'x';
              ::waitpid(helper, nullptr, 0);
              return got && take_save_request() ? 5 : 6;
            }),
            5);
}

}  // namespace
}  // namespace transnormer
