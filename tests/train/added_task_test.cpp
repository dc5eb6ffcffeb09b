// A task that is declared here alone, with a loss and a metric of its own, goes through everything
// that a run does.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "checkpoint/checkpoint.h"
#include "cli/answer.h"
#include "model/weights.h"
#include "task/objective.h"
#include "train/small_run.h"
#include "train/training_run.h"
#include "util/error.h"

namespace transnormer {
namespace {

using Sets = std::vector<std::string>;

constexpr std::int64_t kLength = 6;
constexpr std::int64_t kValidation = 1000;  // number of the first sample for validation

std::int64_t broken_update = -1;  // whose loss is not a number

// Whether a row of tokens has more of token 4 than of token 5. The model's last hidden state is
// read by the first row of the output layer; the loss is the logistic one, the better model is the
// one that is right more often.
class MajorityTask : public Task {
 public:
  explicit MajorityTask(std::shared_ptr<const Tokenizer> tokenizer)
      : tokenizer_(std::move(tokenizer)) {}

  [[nodiscard]] std::shared_ptr<const Tokenizer> tokenizer() const override { return tokenizer_; }
  [[nodiscard]] std::int64_t samples() const override { return 23; }
  [[nodiscard]] std::int64_t sample_length() const override { return kLength; }
  [[nodiscard]] double bytes_per_sample() const override { return 8 * kLength + 4; }
  [[nodiscard]] std::string data_digest() const override { return "majority"; }
  [[nodiscard]] std::vector<std::int64_t> token_counts() const override {
    return std::vector<std::int64_t>(static_cast<std::size_t>(tokenizer_->size()), 1);
  }
  [[nodiscard]] std::string describe_data() const override { return "23 rows"; }

  [[nodiscard]] Batch make_batch(std::span<const std::int64_t> samples, std::int64_t first_position,
                                 std::int64_t rows) const override {
    at::Tensor tokens = at::full({rows, kLength}, 4, at::kLong);
    at::Tensor labels = at::full({rows}, -1.F);
    for (std::int64_t row = 0; row < std::ssize(samples); ++row) {
      std::int64_t bits = samples[static_cast<std::size_t>(row)] * 37 % 64;
      std::int64_t fives = 0;
      for (std::int64_t i = 0; i < kLength; ++i, bits /= 2) {
        tokens[row][i] = 4 + bits % 2;
        fives += bits % 2;
      }
      labels[row] = 2 * fives < kLength ? 1.F : 0.F;
    }
    return {.first_position = first_position,
            .samples = std::ssize(samples),
            .count = std::ssize(samples),
            .tensors = {{"tokens", tokens}, {"labels", labels}}};
  }

  [[nodiscard]] Loss loss(TransNormer& model, const Tensors& batch, const ForwardContext& context,
                          const at::Tensor& scale) const override {
    const at::Tensor hidden = model.forward(batch.at("tokens"), context).select(1, -1);
    const at::Tensor score = model.logits(hidden, context).select(-1, 0);
    const at::Tensor& label = batch.at("labels");
    const at::Tensor is_sample = label.ge(0).to(at::kFloat);
    const double weight = context.training && context.update == broken_update ? NAN : 1;
    const at::Tensor summed =
        weight *
        (at::binary_cross_entropy_with_logits(score, label.clamp_min(0), {}, {}, 0) * is_sample)
            .sum();
    const at::Tensor right = (score.gt(0).eq(label.gt(0.5)).to(at::kFloat) * is_sample).sum();
    return {summed * scale, at::stack({summed.detach(), right}).to(at::kDouble)};
  }
  [[nodiscard]] std::vector<std::string> metrics() const override { return {"accuracy"}; }
  [[nodiscard]] std::optional<double> loss_of_guessing(const TransNormer&) const override {
    return std::log(2.0);
  }

  [[nodiscard]] std::string validation_digest() const override { return "other rows"; }
  [[nodiscard]] std::int64_t validation_size() const override { return 20; }
  [[nodiscard]] std::optional<Sums> validate(TransNormer& model,
                                             const ValidationOptions& options) const override {
    const at::NoGradGuard no_grad;
    Sums sums{.metrics = {0}};
    ForwardContext context;
    context.compute = options.compute;
    for (std::int64_t i = 0; i < validation_size(); ++i) {
      const Batch batch = make_batch(std::vector<std::int64_t>{kValidation + i}, 0, 1);
      const at::Tensor found = loss(model, batch.tensors, context, at::scalar_tensor(1.F)).sums;
      sums.loss += found[0].item<double>();
      sums.metrics[0] += found[1].item<double>();
      sums.count += 1;
    }
    return sums;
  }
  [[nodiscard]] bool is_better(const Report& first, const Report& second) const override {
    return accuracy(first) > accuracy(second);
  }
  [[nodiscard]] static double accuracy(const Report& report) { return report.figures.at(0).second; }

 private:
  std::shared_ptr<const Tokenizer> tokenizer_;
};

class MajorityEvaluator : public Evaluator {
 public:
  explicit MajorityEvaluator(const EvaluationRequest& request)
      : task_(request.tokenizer), compute_(request.compute) {}
  [[nodiscard]] std::optional<Evaluation> evaluate(TransNormer& model) const override {
    const auto sums = task_.validate(model, {.compute = compute_});
    const double accuracy = MajorityTask::accuracy(task_.report(*sums));
    return Evaluation{
        std::make_shared<nlohmann::ordered_json>(nlohmann::ordered_json{{"accuracy", accuracy}}),
        {{"accuracy", std::to_string(accuracy), "rows that are right"}},
        "every row once"};
  }

 private:
  MajorityTask task_;
  at::ScalarType compute_;
};

class MajorityObjective : public Objective {
 public:
  [[nodiscard]] std::unique_ptr<Task> make_task(const TaskRequest& request) const override {
    return std::make_unique<MajorityTask>(
        request.tokenizer ? request.tokenizer : parse_tokenizer("a 3\nb 3\n", "dictionary"));
  }
  [[nodiscard]] std::unique_ptr<Evaluator> make_evaluator(
      const EvaluationRequest& request) const override {
    return std::make_unique<MajorityEvaluator>(request);
  }
};

Sets steps(const std::string& count, Sets more = {}) {
  static const bool added =
      (add_objective("majority", std::make_unique<MajorityObjective>()), true);
  EXPECT_TRUE(added);
  Sets sets{"train.objective=majority", "data.valid=valid.txt", "validation.every=2",
            "checkpoint.every=3", "train.steps=" + count};
  sets.insert(sets.end(), more.begin(), more.end());
  return sets;
}

TEST(AnAddedTask, LearnsAndReportsItsOwnMetric) {
  const SmallRun runs;
  const auto run = set_up(runs.request("run", steps("60", {"model.dropout=0"})));
  Recorded recorded;
  ASSERT_EQ(run_loop(*run, recorded), ExitStatus::done);
  EXPECT_LT(recorded.train.back().loss, 0.5 * recorded.train.front().loss);
  for (const log::TrainEvent& event : recorded.train) {
    ASSERT_EQ(event.figures.size(), 1U);
    EXPECT_EQ(event.figures[0].first, "accuracy");
    // Of one update of 4 samples.
    EXPECT_EQ(std::fmod(4 * event.figures[0].second, 1), 0);
  }
  EXPECT_EQ(recorded.train.back().figures[0].second, 1);
}

TEST(AnAddedTask, DecidesWhichValidationIsTheBest) {
  const SmallRun runs;
  const auto run = set_up(runs.request("run", steps("40")));
  Recorded recorded;
  ASSERT_EQ(run_loop(*run, recorded), ExitStatus::done);
  double best = -1;
  std::int64_t best_step = 0;
  for (const log::ValidEvent& event : recorded.valid) {
    const double accuracy = event.figures.at(0).second;
    EXPECT_EQ(event.best, accuracy > best) << event.step;
    if (accuracy > best) {
      best = accuracy;
      best_step = event.step;
    }
  }
  EXPECT_EQ(run->state.best_step, best_step);
  EXPECT_EQ(run->state.best_valid_figures.at("accuracy"), best);
}

// Nothing to report a mean of yet.
TEST(AnAddedTask, SurvivesAFirstUpdateThatIsNotFinite) {
  const SmallRun runs;
  const auto run = set_up(runs.request("run", steps("3")));
  broken_update = 0;
  Recorded recorded;
  ASSERT_EQ(run_loop(*run, recorded), ExitStatus::done);
  broken_update = -1;
  EXPECT_EQ(recorded.train.front().skipped_updates, 1);
  EXPECT_EQ(recorded.train.back().figures.at(0).first, "accuracy");
}

TEST(AnAddedTask, IsNotValidatedWhereValidationIsOff) {
  const SmallRun runs;
  const auto run = set_up(runs.request("run", steps("3", {"validation.every=0"})));
  Recorded recorded;
  ASSERT_EQ(run_loop(*run, recorded), ExitStatus::done);
  EXPECT_TRUE(recorded.valid.empty());
}

TEST(AnAddedTask, GoesOnFromACheckpointWithTheSameBits) {
  const SmallRun runs;
  ASSERT_EQ(runs.train("continuous", steps("9", {"log.every=4", "log.grad_stats_every=0"})),
            ExitStatus::done);
  ASSERT_EQ(runs.train("stopped", steps("6", {"log.every=4", "log.grad_stats_every=0"})),
            ExitStatus::done);
  ASSERT_EQ(runs.train("stopped", steps("9", {"log.every=4", "log.grad_stats_every=0"})),
            ExitStatus::done);
  for (const std::int64_t step : {6, 9}) {
    expect_same_weights(runs, "continuous", "stopped", step);
  }
  expect_same_state(runs, "continuous", "stopped", 9);  // the metric's sum since step 8 too
}

TEST(AnAddedTask, FillsAShortMicroBatchWithRowsThatCountNothing) {
  const MajorityTask task(parse_tokenizer("a 3\nb 3\n", "dictionary"));
  ModelConfig config;
  config.layers = 1;
  config.dim = 16;
  config.heads = 2;
  TransNormer model(config, {8, kLength}, at::kCPU);
  initialize(model, 1);
  const at::NoGradGuard no_grad;
  const auto sums = [&](std::int64_t rows) {
    const Batch batch = task.make_batch(std::vector<std::int64_t>{1, 2}, 0, rows);
    return task.loss(model, batch.tensors, {}, at::scalar_tensor(1.F)).sums;
  };
  EXPECT_TRUE(at::allclose(sums(5), sums(2), 1e-6));
}

TEST(AnAddedTask, IsEvaluatedAndInspected) {
  const SmallRun runs;
  ASSERT_EQ(runs.train("run", steps("6")), ExitStatus::done);
  const std::string run = (runs.path() / "run").string();
  const auto evaluated = test::answer_of(cli::add_eval, {"eval", run, "--json"});
  const Checkpoint checkpoint = Checkpoint::open(run);
  EXPECT_EQ(evaluated.at("accuracy"), checkpoint.state().best_valid_figures.at("accuracy"));
  EXPECT_EQ(checkpoint.config().train.objective, "majority");
  CLI::App app;
  cli::Run generate;
  cli::add_generate(app, generate);
  app.parse(std::vector<std::string>{run, "generate"});  // reversed, as CLI11 takes them
  EXPECT_THROW((void)generate(), UserError);
  EXPECT_GT(test::answer_of(cli::add_inspect, {"inspect", run, "--json"})
                .at("parameters")
                .get<std::int64_t>(),
            0);
}

}  // namespace
}  // namespace transnormer
