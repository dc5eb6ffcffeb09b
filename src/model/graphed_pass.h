// A training pass that is captured in a CUDA graph and replayed: a small model's thousands of
// launches cost more than their work.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "model/context.h"
#include "model/tensors.h"
#include "ops/runtime/cuda_graph.h"

namespace transnormer {

// What a graph holds for: other shapes or types need another.
struct PassKind {
  std::map<std::string, std::vector<std::int64_t>> sizes;
  at::ScalarType compute = at::kFloat;
  bool activation_checkpointing = false;

  bool operator==(const PassKind&) const = default;
};

// Says when to capture: once a kind has come in two updates. One that comes in a single update is
// not worth it.
class CapturePlan {
 public:
  enum class Step { run, capture, replay };
  [[nodiscard]] Step next(const PassKind& kind, std::int64_t update);
  // To be called once a graph of this kind is there: next() has said `capture`, which may fail, and
  // the former graph is none any more.
  void captured(const PassKind& kind);

 private:
  std::optional<PassKind> captured_;
  std::optional<PassKind> seen_;  // first of its update, without a replay since
  std::int64_t seen_update_ = 0;
};

class GraphedPass {
 public:
  // Forward and backward over one micro-batch on the model's device: adds the gradients of `scale`
  // (an fp32 scalar on the device) times the summed loss to the parameters', and returns sums on
  // the device without waiting for them. May depend on nothing else that changes but the model's
  // weights and the context's update and first sample.
  using Pass = std::function<at::Tensor(const Tensors& batch, const ForwardContext& context,
                                        const at::Tensor& scale)>;

  // Captures what `body` would do, without doing it, and gives what replays it. Throws c10::Error
  // where that cannot be done.
  using Replay = std::function<void()>;
  using Capture = std::function<Replay(std::function<void()> body)>;

  // `parameters`: all that the pass reads. They, their gradients and their copies in the type of
  // the products (ops::Weight) must stay where they are: no pass in another type may come between.
  // `capture`: by a CUDA graph where the device has them, unless told otherwise.
  GraphedPass(std::vector<at::Tensor> parameters, Pass pass, Capture capture = {});

  // What the pass gives, by a replay where there is a graph of this kind of pass; without a way to
  // capture it is always run as it is. A graph is used only after the pass, launched and replayed
  // on gradients of zero, gave the same sums and the same norm of each gradient, to 1e-3; else no
  // more is captured, and fault() tells. The result is overwritten by the next call.
  [[nodiscard]] at::Tensor run(const Tensors& batch, const ForwardContext& context,
                               const at::Tensor& scale);

  // The pass without a graph.
  [[nodiscard]] at::Tensor launch(const Tensors& batch, const ForwardContext& context,
                                  const at::Tensor& scale) const {
    return pass_(batch, context, scale);
  }

  // Whether passes on this device may be captured.
  [[nodiscard]] static bool possible(const at::Device& device) {
    return ops::CudaGraph::possible(device);
  }
  // Why passes are not captured though there is a GPU, or nothing.
  [[nodiscard]] const std::string& fault() const { return fault_; }

 private:
  // What the pass gives, by either way; a graph is there afterwards if it gave the same.
  [[nodiscard]] at::Tensor run_and_capture(const PassKind& kind, const Tensors& batch,
                                           const ForwardContext& context, const at::Tensor& scale);
  // False where that cannot be done.
  bool capture(const Tensors& like, ForwardContext context);
  [[nodiscard]] at::Tensor replay(const Tensors& batch, const ForwardContext& context,
                                  const at::Tensor& scale);
  void drop_graph();
  // The norm of each gradient, fp64 on the host; 0 where there is none.
  [[nodiscard]] at::Tensor gradient_norms() const;
  void zero_gradients() const;
  // Makes what is kept of the weights in other types count as old.
  void forget_copies() const;

  std::vector<at::Tensor> parameters_;
  Pass pass_;
  Capture capture_;
  std::string fault_;

  CapturePlan plan_;
  Replay replay_;  // empty where there is no graph
  // What the graph reads and writes.
  Tensors batch_;
  at::Tensor counters_;  // LiveCounters
  at::Tensor scale_;
  at::Tensor sums_;
};

}  // namespace transnormer
