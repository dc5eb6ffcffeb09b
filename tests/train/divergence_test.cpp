#include "train/divergence.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>

namespace transnormer {
namespace {

constexpr std::int64_t kWords = 1000;
const double kGuessing = std::log(static_cast<double>(kWords));
const double kGuess = std::log(1000.0);

// The first rise that losses of these updates give, by step from 1 on.
std::optional<LossRise> first_rise(int updates, const std::function<double(int)>& loss,
                                   TrainingState& state) {
  for (int update = 1; update <= updates; ++update) {
    ++state.step;
    if (const auto rise = judge_loss(loss(static_cast<int>(state.step)), kGuessing, state)) {
      return rise;
    }
  }
  return std::nullopt;
}

std::optional<LossRise> first_rise(int updates, const std::function<double(int)>& loss) {
  TrainingState state;
  return first_rise(updates, loss, state);
}

TEST(Divergence, AnOrdinaryRunHasNone) {
  EXPECT_FALSE(first_rise(2000, [](int step) { return kGuess * (0.4 + 1.0 / step); }));
}

TEST(Divergence, ARunThatStartsFarAboveGuessingAndFallsHasNone) {
  EXPECT_FALSE(
      first_rise(1000, [](int step) { return 1 + 100 * kGuess * std::exp(-step / 100.0); }));
}

TEST(Divergence, ARunThatStaysAtTwiceGuessingHasNone) {
  EXPECT_FALSE(first_rise(1000, [](int) { return 2 * kGuess; }));
}

TEST(Divergence, ALossThatRisesFarAboveGuessingIsFoundAtTheWindowsEnd) {
  TrainingState state;
  const auto rise = first_rise(
      300, [](int step) { return step <= 120 ? 2 : 10 * kGuess; }, state);
  ASSERT_TRUE(rise);
  EXPECT_NEAR(rise->before, 2, 1e-9);
  EXPECT_NEAR(rise->now, (20 * 2 + 30 * 10 * kGuess) / 50, 1e-9);
  EXPECT_EQ(state.step, 150);
  EXPECT_EQ(state.low_loss_step, 100);
}

TEST(Divergence, ARunThatIsFarAboveGuessingFromItsStartIsFoundByItsSecondWindow) {
  EXPECT_FALSE(first_rise(99, [](int) { return 5 * kGuess; }));
  EXPECT_TRUE(first_rise(100, [](int) { return 5 * kGuess; }));
}

TEST(Divergence, AFallOfAFifthAWindowIsTheLeastThatIsTaken) {
  const auto stairs = [](double factor) {
    return [factor](int step) { return 50 * kGuess * std::pow(factor, (step - 1) / 50); };
  };
  EXPECT_FALSE(first_rise(250, stairs(0.79)));
  EXPECT_TRUE(first_rise(250, stairs(0.81)));
}

TEST(Divergence, NoWindowOfAHighLossCountsAsSoundThoughItFalls) {
  TrainingState state;
  state.step = 50;
  restart_loss_windows(state);
  const auto loss = [](int step) { return kGuess * (step <= 100 ? 100 : step <= 150 ? 20 : 18); };
  EXPECT_TRUE(first_rise(150, loss, state));
  EXPECT_EQ(state.step, 200);
  EXPECT_EQ(state.low_loss_step, 50);
}

TEST(Divergence, LossesThatAreNotFiniteAreNotCounted) {
  const double infinity = std::numeric_limits<double>::infinity();
  EXPECT_FALSE(first_rise(300, [&](int step) { return step % 2 == 0 ? infinity : 3.0; }));
}

TEST(Divergence, ASavedStateIsJudgedOnAsIfItHadNeverStopped) {
  const auto loss = [](int step) { return step <= 60 ? 3 : 10 * kGuess; };
  TrainingState state;
  for (int step = 1; step <= 70; ++step) {
    state.step = step;
    ASSERT_FALSE(judge_loss(loss(step), kGuessing, state));
  }
  TrainingState read = state_from_json(state_to_json(state), "state.json");
  const auto resumed = first_rise(30, loss, read);
  const auto whole = first_rise(100, loss);
  ASSERT_TRUE(resumed && whole);
  EXPECT_EQ(resumed->now, whole->now);
  EXPECT_EQ(resumed->before, whole->before);
}

TEST(Divergence, AfterARestartTwoWindowsAreNeededAgain) {
  TrainingState state;
  for (state.step = 1; state.step < 99; ++state.step) {
    (void)judge_loss(3, kGuessing, state);
  }
  restart_loss_windows(state);
  EXPECT_FALSE(first_rise(
      99, [](int) { return 9 * kGuess; }, state));
  EXPECT_TRUE(first_rise(
      100, [](int) { return 9 * kGuess; }, state));
}

TEST(Divergence, IsNearWhileTheLossOfTheLastUpdatesIsHigh) {
  TrainingState state;
  EXPECT_FALSE(is_loss_high(kGuessing, state));
  const auto go_on = [&state](int updates, double loss) {
    (void)first_rise(
        updates, [loss](int) { return loss; }, state);
  };
  go_on(60, kGuess);
  EXPECT_FALSE(is_loss_high(kGuessing, state));
  go_on(10, 7 * kGuess);  // half of the 20 of this window
  EXPECT_TRUE(is_loss_high(kGuessing, state));
  go_on(30, 7 * kGuess);
  EXPECT_TRUE(is_loss_high(kGuessing, state));
  EXPECT_EQ(state.low_loss_step, 50);
  go_on(1, kGuess);
  EXPECT_TRUE(is_loss_high(kGuessing, state));  // as the whole window before
  go_on(49, kGuess);
  EXPECT_FALSE(is_loss_high(kGuessing, state));
}

}  // namespace
}  // namespace transnormer
