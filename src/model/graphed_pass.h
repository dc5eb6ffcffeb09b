// A training pass that is recorded on a GPU and replayed: a small model's thousands of launches
// cost more than their work.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "model/context.h"
#include "model/transnormer.h"
#include "ops/runtime/cuda_graph.h"

namespace transnormer {

// What a recording holds for: other shapes, types or scales need another.
struct PassKind {
  std::vector<std::int64_t> sizes;
  at::ScalarType compute = at::kFloat;
  bool activation_checkpointing = false;
  double scale = 0;

  bool operator==(const PassKind&) const = default;
};

// Says when to record: once a kind has come in two updates. One that comes in a single update, as
// an epoch's last may, is not worth it.
class CapturePlan {
 public:
  enum class Step { run, record, replay };
  [[nodiscard]] Step next(const PassKind& kind, std::int64_t update);

 private:
  std::optional<PassKind> recorded_;
  std::optional<PassKind> seen_;  // first of its update, without a replay since
  std::int64_t seen_update_ = 0;
};

class GraphedPass {
 public:
  // As training_pass. May depend on nothing else that changes but the model's weights and the
  // context's update and first sample.
  using Pass = std::function<at::Tensor(const at::Tensor& inputs, const at::Tensor& targets,
                                        const ForwardContext& context, double scale)>;

  // `parameters`: all that the pass reads. They, their gradients and their copies in the type of
  // the products (ops::Weight) must stay where they are: no pass in another type may come between.
  GraphedPass(std::vector<at::Tensor> parameters, Pass pass);
  // The training_pass of a model, which must outlive this.
  explicit GraphedPass(TransNormer& model);

  // What the pass gives, by a replay where there is a recording of this kind of pass. On a CPU it
  // is always run as it is. The result is overwritten by the next call.
  [[nodiscard]] at::Tensor run(const at::Tensor& inputs, const at::Tensor& targets,
                               const ForwardContext& context, double scale);

  // Why passes are not recorded though there is a GPU, or nothing.
  [[nodiscard]] const std::string& fault() const { return fault_; }

 private:
  // False where that cannot be done.
  bool record(const at::Tensor& like, ForwardContext context, double scale);
  [[nodiscard]] at::Tensor replay(const at::Tensor& inputs, const at::Tensor& targets,
                                  const ForwardContext& context);
  // Makes what is kept of the weights in other types count as old.
  void forget_copies() const;

  std::vector<at::Tensor> parameters_;
  Pass pass_;
  std::string fault_;

  CapturePlan plan_;
  std::optional<ops::CudaGraph> recording_;
  // What the recording reads and writes.
  at::Tensor inputs_;
  at::Tensor targets_;
  at::Tensor counters_;  // LiveCounters
  at::Tensor loss_;
};

}  // namespace transnormer
