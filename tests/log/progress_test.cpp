#include "log/progress.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pty.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

#include "log/console.h"

namespace transnormer::log {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;

ProgressState half_way() {
  return {"train", 60, 100, 20, 10, "loss 4.31"};
}

// Runs `body` in a child whose stderr is a terminal of 80 columns, and returns what it received.
std::string on_a_terminal(const std::function<void()>& body, const char* term = "xterm") {
  struct winsize size {};
  size.ws_col = 80;
  size.ws_row = 24;
  int master = -1;
  int slave = -1;
  if (::openpty(&master, &slave, nullptr, nullptr, &size) != 0) {
    return "no pseudo-terminal";
  }
  const pid_t child = ::fork();
  if (child == 0) {
    ::dup2(slave, STDERR_FILENO);
    ::setenv("TERM", term, 1);
    body();
    ::_exit(0);
  }
  ::close(slave);
  std::string received;
  char buffer[4096];
  for (ssize_t got = 0; (got = ::read(master, buffer, sizeof buffer)) > 0;) {
    received.append(buffer, static_cast<std::size_t>(got));
  }
  ::close(master);
  ::waitpid(child, nullptr, 0);
  return received;
}

// The lines that are left on a screen: "\r" goes to the line's start, "\x1b[K" erases to its end.
std::vector<std::string> screen(const std::string& received) {
  std::vector<std::string> lines{""};
  std::size_t column = 0;
  for (std::size_t i = 0; i < received.size(); ++i) {
    if (received[i] == '\n') {
      lines.emplace_back();
      column = 0;
    } else if (received[i] == '\r') {
      column = 0;
    } else if (received.compare(i, 3, "\x1b[K") == 0) {
      lines.back().resize(column);
      i += 2;
    } else {
      lines.back().resize(std::max(lines.back().size(), column + 1), ' ');
      lines.back()[column++] = received[i];
    }
  }
  return lines;
}

TEST(ProgressBarText, ShowsShareCountRateTimeLeftAndNote) {
  EXPECT_EQ(progress_bar_text(half_way(), 100),
            "train [==================>           ]  60% 60/100  4/s  10.0s left  loss 4.31");
}

TEST(ProgressBarText, NeverGetsWiderThanTheTerminal) {
  for (int columns = 0; columns < 120; ++columns) {
    EXPECT_LE(progress_bar_text(half_way(), columns).size(), static_cast<std::size_t>(columns));
  }
}

TEST(ProgressBarText, CutsBetweenCharacters) {
  const ProgressState state{"caf\u00e9\u00e9", 0, 10, 0, 1, ""};
  EXPECT_EQ(progress_bar_text(state, 4), "caf\u00e9");
}

TEST(ProgressBarText, ShowsNoShareOfAnUnknownWhole) {
  const std::string text = progress_bar_text({"read", 500, 0, 0, 5, ""}, 80);
  EXPECT_EQ(text, "read 500  100/s");
}

TEST(ProgressBarText, IsFullAtTheEndAndBeyond) {
  EXPECT_THAT(progress_bar_text({"read", 12, 10, 0, 1, ""}, 80),
              HasSubstr("[==============================] 100%"));
}

TEST(ProgressLineText, SaysTheSameInWords) {
  EXPECT_EQ(progress_line_text(half_way()), "train: 60% (60 of 100), 4/s, 10.0s left, loss 4.31");
}

TEST(ProgressBar, KeepsMessagesWholeAndLeavesNoTrace) {
  const std::string received = on_a_terminal([] {
    ::setenv("NO_COLOR", "1", 1);
    ProgressBar bar("training", 100);
    info("first message");
    {
      ProgressBar inner("validation", 10);
      info("second message");
    }
    info("third message");
    bar.finish();
    info("last message");
  });
  EXPECT_THAT(received, HasSubstr("validation ["));
  EXPECT_THAT(screen(received),
              ElementsAre(EndsWith("info  first message"), EndsWith("info  second message"),
                          EndsWith("info  third message"), EndsWith("info  last message"), ""));
}

TEST(ProgressBar, IsDrawnAnewBelowAMessageAndAfterANestedBar) {
  const std::string received = on_a_terminal([] {
    const ProgressBar bar("training", 100);
    info("message");
    { const ProgressBar inner("validation", 10); }
    ::_exit(0);
  });
  EXPECT_THAT(screen(received).back(),
              AllOf(HasSubstr("training ["), Not(HasSubstr("validation"))));
}

TEST(ProgressBar, WritesNoControlCharactersElsewhere) {
  testing::internal::CaptureStderr();
  {
    ProgressBar bar("training", 100);
    for (int i = 0; i <= 100; ++i) {
      bar.update(i);
    }
    bar.finish();
  }
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
}

TEST(ProgressBar, DrawsNothingWhereDisabled) {
  EXPECT_EQ(on_a_terminal([] {
              ProgressBar bar("training", 100, 0, /*enabled=*/false);
              bar.update(50);
            }),
            "");
}

TEST(ProgressBar, IsNotDrawnOnATerminalThatCanOnlyPrint) {
  ::unsetenv("NO_COLOR");
  const auto body = [] {
    ProgressBar bar("training", 100);
    error("message");
  };
  EXPECT_THAT(on_a_terminal(body), AllOf(HasSubstr("training ["), HasSubstr("\x1b[31m")));
  const std::string plain = on_a_terminal(body, "dumb");
  EXPECT_THAT(plain, AllOf(HasSubstr("error  message"), Not(HasSubstr("training")),
                           Not(HasSubstr("\x1b"))));
}

TEST(ConsoleColours, AreOnATerminalUnlessNoColorIsSet) {
  const auto message = [] { error("red"); };
  ::unsetenv("NO_COLOR");
  EXPECT_THAT(on_a_terminal(message), HasSubstr("\x1b[31merror\x1b[0m"));
  ::setenv("NO_COLOR", "1", 1);
  EXPECT_THAT(on_a_terminal(message), Not(HasSubstr("\x1b[31m")));
  ::unsetenv("NO_COLOR");
  testing::internal::CaptureStderr();
  message();
  EXPECT_THAT(testing::internal::GetCapturedStderr(), Not(HasSubstr("\x1b")));
}

}  // namespace
}  // namespace transnormer::log
