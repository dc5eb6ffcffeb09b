// An attention against the same written plainly in double precision, one token of one head at a
// time, and what every attention must hold to.
#pragma once

#include <ATen/ATen.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "model/attention/registry.h"

namespace transnormer::test {

// From what would stand in the config: {"attention": "sparse", "window": 3}.
[[nodiscard]] AttentionConfig attention_config(const std::string& json);

// With initial weights, a little of a wave added so that none of them are all alike.
[[nodiscard]] std::shared_ptr<Attention> make_started(const std::string& json,
                                                      const AttentionSettings& settings);

// Normal, [batch, time, dim].
[[nodiscard]] at::Tensor some_input(std::int64_t batch, std::int64_t time, std::int64_t dim,
                                    std::uint64_t seed = 1);

// Whose tokens these are.
struct Place {
  std::int64_t sample;
  std::int64_t head;
};

struct Plain {
  // Of the n tokens of one sequence, without padding: q, k [n, key_dim], v [n, value_dim], encoded,
  // double -> [n, value_dim].
  std::function<at::Tensor(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                           const Place& place)>
      head;
  // Of the merged heads; empty: the identity.
  std::function<at::Tensor(const at::Tensor& merged)> finish = {};
};

// softmax(scale q·k) v over the tokens that sees(i, j) says.
[[nodiscard]] at::Tensor softmax_of_seen(
    const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, double scale,
    const std::function<bool(std::int64_t, std::int64_t)>& sees);

// Outputs at real tokens and the gradients of x and of all parameters.
void expect_as_plain(Attention& attention, const Plain& plain, const at::Tensor& x,
                     const ForwardContext& context, const std::string& what);

// Without padding; with padding in front, amidst and behind, and a row of nothing else; with two
// segments in a row. time at least 12. Three rows.
[[nodiscard]] std::vector<std::pair<std::string, ForwardContext>> contexts(std::int64_t time,
                                                                           bool causal);

// What comes after a token changes nothing in it, to the bit, wherever it stands.
void expect_causal(Attention& attention, std::int64_t time, std::int64_t dim);

// Neither what stands at padding nor how much there is of it changes outputs or gradients. The
// context is that of a call without padding.
void expect_padding_unseen(Attention& attention, const ForwardContext& context, std::int64_t time,
                           std::int64_t dim);

// In calls of any number of tokens.
void expect_decodes(Attention& attention, std::int64_t time, std::int64_t dim);

// In each half precision, forward and backward.
void expect_half_close(Attention& attention, const ForwardContext& context, std::int64_t time,
                       std::int64_t dim);

// Dropout on the weights is a function of the place in the sample and of the update.
void expect_drops_by_place(Attention& attention, const ForwardContext& context, std::int64_t time,
                           std::int64_t dim);

// It drops the share `p` of the weights that are not zero, those of `together` neighbouring keys at
// once, and scales the rest.
void expect_drops_share(Attention& attention, const ForwardContext& context, double p,
                        std::int64_t together, std::int64_t time, std::int64_t dim);

// The lines that the model's attention gives, `max_positions` 16.
[[nodiscard]] std::vector<std::string> faults_of_settings(const std::string& json);

}  // namespace transnormer::test
