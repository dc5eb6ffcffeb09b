#include "eval/evaluate.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "model/attention/registry.h"
#include "ops/loss/linear_cross_entropy.h"
#include "util/error.h"

namespace transnormer {
namespace {

// Where the windows lie in a stream: window k reads inputs [k * stride, k * stride + length) and
// scores the targets that no window before it has.
class Windows {
 public:
  Windows(std::int64_t tokens, const EvaluateOptions& options)
      : tokens_(tokens),
        length_(options.window),
        stride_(options.window - options.context_window) {}

  [[nodiscard]] std::int64_t count() const {
    return tokens_ <= length_ ? 1 : 1 + (tokens_ - length_ + stride_ - 1) / stride_;
  }
  [[nodiscard]] std::int64_t begin(std::int64_t window) const { return window * stride_; }
  [[nodiscard]] std::int64_t end(std::int64_t window) const {
    return std::min(begin(window) + length_, tokens_);
  }
  [[nodiscard]] std::int64_t first_scored(std::int64_t window) const {
    return window == 0 ? 0 : end(window - 1);
  }

 private:
  std::int64_t tokens_;
  std::int64_t length_;
  std::int64_t stride_;
};

// Of some neighbouring windows: the inputs, and where among them targets are scored.
struct Pass {
  at::Tensor inputs;       // [windows, time]
  at::Tensor targets;      // [scored]
  at::Tensor scored_rows;  // [scored], into the flattened [windows * time]
};

// The inputs are the stream shifted right by one. A window that ends before the others, or that
// ranks share, is filled with the first input: attention is causal, so what follows a target never
// reaches it.
Pass make_pass(const TokenStream& stream, const Windows& windows, std::int64_t first,
               std::int64_t last, const EvaluateOptions& options) {
  const std::int64_t time =
      options.sequence.size() > 1 ? options.window : windows.end(first) - windows.begin(first);
  const std::int64_t scored_begin = windows.first_scored(first);
  const std::int64_t scored = windows.end(last - 1) - scored_begin;
  Pass pass{at::full({last - first, time}, options.first_input, at::kLong),
            at::empty({scored}, at::kLong), at::empty({scored}, at::kLong)};
  stream.copy(scored_begin, scored, pass.targets.data_ptr<std::int64_t>());
  auto* input = pass.inputs.data_ptr<std::int64_t>();
  auto* row = pass.scored_rows.data_ptr<std::int64_t>();
  for (std::int64_t window = first; window < last; ++window, input += time) {
    const std::int64_t begin = windows.begin(window);
    const std::int64_t end = windows.end(window);
    const std::int64_t skip = begin == 0 ? 1 : 0;
    stream.copy(begin - 1 + skip, end - begin - skip, input + skip);
    for (std::int64_t target = windows.first_scored(window); target < end; ++target) {
      *row++ = (window - first) * time + target - begin;
    }
  }
  return pass;
}

// Which of a pass's targets this process scores, and the part of the pass that it takes for that.
struct OwnPass {
  Pass pass;
  at::Tensor targets;  // [scored], numbers of targets of the whole pass; undefined: all
};

OwnPass own_part(const Pass& whole, const dist::Group& sequence) {
  if (sequence.size() == 1) {
    return {whole, {}};
  }
  const std::int64_t window = whole.inputs.size(1);
  const std::int64_t time = window / sequence.size();
  const std::int64_t first = sequence.rank() * time;
  const at::Tensor place = whole.scored_rows.remainder(window) - first;
  const at::Tensor own = place.ge(0).logical_and(place.lt(time)).nonzero().view({-1});
  const at::Tensor row = whole.scored_rows.div(window, "floor") * time + place;
  return {{whole.inputs.narrow(1, first, time).contiguous(), whole.targets.index_select(0, own),
           row.index_select(0, own)},
          own};
}

// [scored] losses, on the CPU.
at::Tensor pass_losses(TransNormer& model, const Pass& pass, const EvaluateOptions& options) {
  ForwardContext context;
  context.compute = options.compute;
  context.sequence = &options.sequence;
  const at::Device device = model.device();
  const at::Tensor hidden = model.forward(pass.inputs.to(device), context).flatten(0, 1);
  const at::Tensor scored = pass.targets.size(0) == hidden.size(0)
                                ? hidden
                                : hidden.index_select(0, pass.scored_rows.to(device));
  ops::LinearCrossEntropyOptions how;
  how.compute = options.compute;
  return ops::token_losses(scored, model.output_layer(), pass.targets.to(device), how)
      .to(at::kCPU)
      .contiguous();
}

// Writes the losses of the targets that this process scores in windows [first, last) to `losses`,
// [scored].
void score(TransNormer& model, const TokenStream& stream, const Windows& windows,
           std::int64_t first, std::int64_t last, const EvaluateOptions& options,
           at::Tensor losses) {
  const auto [pass, targets] =
      own_part(make_pass(stream, windows, first, last, options), options.sequence);
  const at::Tensor found = pass_losses(model, pass, options);
  if (targets.defined()) {
    losses.index_copy_(0, targets, found);
  } else {
    losses.copy_(found);
  }
}

// Adds the losses of the tokens that follow, and tells of them.
void add(const at::Tensor& losses, const EvaluateOptions& options, EvaluateResult& result) {
  const std::span<const float> nll(losses.const_data_ptr<float>(),
                                   static_cast<std::size_t>(losses.size(0)));
  for (const double loss : nll) {
    result.nll_sum += loss;
    result.nll_square_sum += loss * loss;
  }
  if (options.on_tokens) {
    options.on_tokens(result.tokens, nll);
  }
  result.tokens += std::ssize(nll);
  if (options.on_progress) {
    options.on_progress(result.tokens);
  }
}

bool any_should_stop(const EvaluateOptions& options) {
  std::array<double, 1> asked{options.should_stop && options.should_stop() ? 1.0 : 0.0};
  options.batches.sum(asked);
  options.sequence.sum(asked);
  return asked[0] > 0;
}

void check_options(const TransNormer& model, const EvaluateOptions& options) {
  if (options.window < 1) {
    throw UserError("the evaluation window is " + std::to_string(options.window) +
                    "; it must be at least 1");
  }
  if (options.context_window < 0 || options.context_window >= options.window) {
    throw UserError("context_window is " + std::to_string(options.context_window) +
                    "; it must be at least 0 and below the window of " +
                    std::to_string(options.window) + " tokens (data.tokens_per_sample)");
  }
  const std::vector<std::string> faults =
      unfit_for_sequence_parallel(model.config(), options.window, options.sequence.size());
  if (!faults.empty()) {
    throw UserError(faults);
  }
}

}  // namespace

std::int64_t windows_a_pass(at::Device device, std::int64_t window) {
  const std::int64_t tokens = device.is_cuda() ? 65536 : 8192;
  return std::max<std::int64_t>(tokens / window, 1);
}

double EvaluateResult::nll_stderr() const {
  if (tokens < 2) {
    return std::numeric_limits<double>::quiet_NaN();
  }
  const auto n = static_cast<double>(tokens);
  const double variance = (nll_square_sum - nll_sum * nll_sum / n) / (n - 1);
  return std::sqrt(std::max(variance, 0.0) / n);
}

std::int64_t scored_tokens(std::int64_t tokens, const EvaluateOptions& options) {
  if (options.max_tokens == 0 || options.max_tokens >= tokens) {
    return tokens;
  }
  const std::int64_t stride = options.window - options.context_window;
  const std::int64_t behind_first = std::max<std::int64_t>(options.max_tokens - options.window, 0);
  return std::min(options.window + behind_first / stride * stride, tokens);
}

EvaluateResult evaluate(TransNormer& model, const TokenStream& stream,
                        const EvaluateOptions& options) {
  check_options(model, options);
  EvaluateResult result;
  if (stream.size() == 0) {
    return result;
  }
  const at::NoGradGuard no_grad;
  const Windows windows(scored_tokens(stream.size(), options), options);
  const std::int64_t batch = std::max<std::int64_t>(options.batch_size, 1);
  const std::int64_t round = batch * options.batches.size();  // windows, a batch for each rank
  for (std::int64_t first = 0; first < windows.count(); first += round) {
    if (any_should_stop(options)) {
      result.complete = false;
      return result;
    }
    const std::int64_t last = std::min(first + round, windows.count());
    const std::int64_t begin = windows.first_scored(first);
    // Each process writes those of its own targets, so that a sum over all leaves every bit.
    const at::Tensor losses = at::zeros({windows.end(last - 1) - begin});
    const std::int64_t own_first = first + options.batches.rank() * batch;
    if (own_first < last) {
      const std::int64_t own_last = std::min(own_first + batch, last);
      const std::int64_t own_begin = windows.first_scored(own_first);
      score(model, stream, windows, own_first, own_last, options,
            losses.slice(0, own_begin - begin, windows.end(own_last - 1) - begin));
    }
    options.sequence.sum(losses);
    options.batches.sum(losses);
    add(losses, options, result);
  }
  return result;
}

double unigram_nll(const TokenStream& stream, const std::vector<std::int64_t>& counts) {
  std::vector<std::int64_t> seen(counts.size());
  stream.for_each([&seen](TokenId token) { ++seen.at(static_cast<std::size_t>(token)); });
  auto total = static_cast<double>(counts.size());
  for (const std::int64_t count : counts) {
    total += static_cast<double>(count);
  }
  double sum = 0;
  for (std::size_t token = 0; token < counts.size(); ++token) {
    if (seen[token] > 0) {
      sum -= static_cast<double>(seen[token]) *
             std::log((static_cast<double>(counts[token]) + 1) / total);
    }
  }
  return sum / static_cast<double>(stream.size());
}

}  // namespace transnormer
