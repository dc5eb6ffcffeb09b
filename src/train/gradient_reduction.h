// The sum of gradients over the processes of a job, while the backward pass still makes them.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "config/config.h"
#include "dist/world.h"
#include "model/context.h"
#include "model/transnormer.h"
#include "optim/optimizer.h"

namespace transnormer {

// Each process has its own samples' gradients, which the operators add to the flat buffers
// themselves; so parts of these buffers are sent as soon as the pass has gone past the layers that
// they belong to. The table of embeddings, most of all parameters where there are many words, would
// be whole last: its gradient from the output layer is sent before the backward pass begins, that
// of its rows afterwards, as the rows that occur. In a world of one nothing is done.
class GradientReduction final : public GradientWatcher {
 public:
  // All must outlive it. Where the optimizer is shared, each sum is made where it is needed only.
  GradientReduction(const dist::World& world, const TransNormer& model, const Optimizer& optimizer,
                    const DistributedConfig& config);

  [[nodiscard]] bool is_needed() const { return group_.size() > 1; }

  // Before the last pass of an update. `fills`: whether the gradients hold those of passes before.
  void begin(bool fills);
  // The loss of that pass is made. See Loss::output_gradient_is_made.
  void on_loss(bool output_gradient_is_made);
  void on_gradients_behind(std::int64_t layer) override;
  [[nodiscard]] ops::RowGradients* embedding_rows() override;
  // When the pass is over: until all is summed.
  void finish();

  // The 2-norm of each gradient, fp64 [parameters], on the CPU, where it is needed; and all
  // `figures`, as sums over the processes. Each looks at its own part of the gradients only.
  [[nodiscard]] at::Tensor norms(std::vector<double>& figures) const;
  // All gradients everywhere, where an optimizer that is shared has left them in parts.
  void make_whole() const;

 private:
  struct Interval {
    std::size_t buffer = 0;
    std::int64_t begin = 0;
    std::int64_t end = 0;
    [[nodiscard]] std::int64_t size() const { return end - begin; }
  };
  struct Sum {
    dist::Pending pending;
    at::Tensor sent;    // in the type that is sent
    at::Tensor target;  // undefined: it is that itself
  };

  void plan(const TransNormer& model);
  void send(const std::vector<Interval>& intervals);
  void send(const Interval& interval);
  void send(const at::Tensor& gradient, int to);  // -1: to all
  void add_rows_of_all();

  const dist::Group& group_;
  const Optimizer& optimizer_;
  std::int64_t bucket_elements_;
  at::ScalarType sent_as_;

  // By layer: what is whole behind it; the last: behind all layers.
  std::vector<std::vector<Interval>> behind_;
  std::vector<Interval> rest_;    // whole when the pass is over
  std::vector<Interval> table_;   // of the embedding
  std::vector<Interval> output_;  // of the output layer, where it is not the same
  ops::Weight embedding_;
  bool is_tied_;

  // Of the present update.
  bool fills_ = false;
  bool table_is_sent_ = false;     // but for its rows
  std::vector<bool> was_reached_;  // of the layers
  ops::RowGradients rows_;
  std::vector<Interval> waiting_;  // for a bucket to be full
  std::vector<Sum> sums_;
};

}  // namespace transnormer
