// What a run learns: from samples to batches of named tensors, from a batch to a summed loss, from
// sums to a report, and which of two reports is better. Whoever trains, validates or measures knows
// a task by this alone.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "dist/group.h"
#include "model/context.h"
#include "model/tensors.h"
#include "model/transnormer.h"
#include "tokenizer/tokenizer.h"

namespace transnormer {

// A group of samples.
struct Batch {
  std::int64_t first_position = 0;  // in the endless sequence of samples, of the first row
  std::int64_t samples = 0;         // the first rows; those behind them are masked
  std::int64_t count = 0;           // of what the loss is a mean over, such as target tokens
  Tensors tensors = {};             // [rows, ..], on the CPU
};

// Sums over some samples; a mean is formed only where it is shown.
struct Sums {
  double loss = 0;  // nats
  std::int64_t count = 0;
  std::vector<double> metrics = {};  // in the order of Task::metrics()
};

// What is said of sums.
struct Report {
  double loss = 0;  // mean, nats
  // Further figures by name, in the order in which they are shown: "perplexity".
  std::vector<std::pair<std::string, double>> figures = {};
};

struct Loss {
  at::Tensor scaled;  // fp32 scalar, differentiable: scale times the summed loss
  at::Tensor sums;    // fp64 [1 + metrics]: summed loss, then the task's metrics, on the device
  // The output layer's gradient is made already: the backward pass adds nothing to it but, where it
  // is tied, the embedding's rows.
  bool output_gradient_is_made = false;
};

struct ValidationOptions {
  std::int64_t batch_size = 1;
  at::ScalarType compute = at::kFloat;
  std::function<void(std::int64_t done)> on_progress = nullptr;  // of validation_size()
  std::function<bool()> should_stop = nullptr;                   // asked between batches
  dist::Group sequence{};  // which share each sequence; the sums are those of all, on every rank
  dist::Group batches{};   // .. and which share out the batches (eval/evaluate.h)
};

class Task {
 public:
  virtual ~Task() = default;

  [[nodiscard]] virtual std::shared_ptr<const Tokenizer> tokenizer() const = 0;

  // --- What is learned from.
  [[nodiscard]] virtual std::int64_t samples() const = 0;        // of an epoch
  [[nodiscard]] virtual std::int64_t sample_length() const = 0;  // of the longest, in tokens
  [[nodiscard]] virtual double bytes_per_sample() const = 0;     // in a batch
  [[nodiscard]] virtual std::string data_digest() const = 0;
  [[nodiscard]] virtual std::vector<std::int64_t> token_counts() const = 0;  // [tokenizer's size]
  [[nodiscard]] virtual std::string describe_data() const = 0;               // for people

  // The samples of these numbers, the first at `first_position`, and behind them masked rows up to
  // `rows`: such a row adds nothing to loss, metrics and gradients. Called by a thread of its own.
  [[nodiscard]] virtual Batch make_batch(std::span<const std::int64_t> samples,
                                         std::int64_t first_position, std::int64_t rows) const = 0;

  // The part-th of equally long neighbouring parts along time of a batch, for ranks that share its
  // sequences; `count` is that of the part. Throws UserError where the task's batches have no
  // parts.
  [[nodiscard]] virtual Batch part_of(const Batch& batch, int part, int parts) const;

  // --- The loss of a batch on the model's device. `scale`: an fp32 scalar there, which the host
  // does not read. Waits for nothing. Throws ops::PassStopped where the context says so.
  [[nodiscard]] virtual Loss loss(TransNormer& model, const Tensors& batch,
                                  const ForwardContext& context, const at::Tensor& scale) const = 0;
  // Names of what is summed beside the loss.
  [[nodiscard]] virtual std::vector<std::string> metrics() const { return {}; }
  [[nodiscard]] virtual Report report(const Sums& sums) const;
  // Mean loss of a model that knows nothing; nothing where there is no such thing.
  [[nodiscard]] virtual std::optional<double> loss_of_guessing(const TransNormer& model) const = 0;

  // --- Validation while training.
  // Of what is validated on; empty where there is nothing.
  [[nodiscard]] virtual std::string validation_digest() const = 0;
  [[nodiscard]] virtual std::int64_t validation_size() const = 0;
  // Whether that is less than there is (validation.max_tokens).
  [[nodiscard]] virtual bool validates_in_part() const { return false; }
  // Nothing where should_stop said so on the way.
  [[nodiscard]] virtual std::optional<Sums> validate(TransNormer& model,
                                                     const ValidationOptions& options) const = 0;
  // Whether the first, whose loss is finite, is the better one.
  [[nodiscard]] virtual bool is_better(const Report& first, const Report& second) const;
};

}  // namespace transnormer
