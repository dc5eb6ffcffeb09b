// What every attention and every block keeps to, as checks for one of either.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "config/config.h"
#include "model/context.h"

namespace torch::nn {
class Module;
}

namespace transnormer::test {

// An attention by its name, with some of its settings other than their defaults.
[[nodiscard]] AttentionConfig with_settings(const char* name,
                                            const std::map<std::string, std::int64_t>& settings);

// An attention or a block whose parameters are set.
struct Subject {
  std::shared_ptr<torch::nn::Module> module;
  std::function<at::Tensor(const at::Tensor& x, const ForwardContext& context,
                           AttentionState* state)>
      forward;
  std::function<std::unique_ptr<AttentionState>(std::int64_t batch)> make_state;
  std::int64_t dim = 0;
  bool causal = true;
};

// Smooth numbers without a pattern, [batch, time, dim] or any other sizes.
[[nodiscard]] at::Tensor waves(at::IntArrayRef sizes, double seed = 0.37);

// Every parameter N(0, std), the same for the same seed.
void fill_parameters(torch::nn::Module& module, double std, std::uint64_t seed = 5);

// In double, one sequence [time, dim] of real tokens -> [time, dim].
using Reference = std::function<at::Tensor(const at::Tensor& x,
                                           const std::map<std::string, at::Tensor>& parameters)>;

// Outputs and all gradients, of x too, are those of the reference, for two sequences of `time`.
void expect_as_in_double(const Subject& subject, const Reference& reference, std::int64_t time,
                         double tolerance, const std::string& what);

// No output before a token changes by a bit where the token does; its own does.
void expect_causal_to_the_bit(const Subject& subject, std::int64_t time, const std::string& what);

// Neither the content nor the amount of padding, in front, behind or between, nor another segment
// changes an output or a gradient.
void expect_padding_and_segments_unseen(const Subject& subject, std::int64_t time,
                                        const std::string& what);

// By any number of tokens a call.
void expect_decodes_as_whole(const Subject& subject, std::int64_t time, const std::string& what);

// In bf16 and fp16, and gradients are finite.
void expect_close_in_half(const Subject& subject, std::int64_t time, double bf16, double fp16,
                          const std::string& what);

}  // namespace transnormer::test
