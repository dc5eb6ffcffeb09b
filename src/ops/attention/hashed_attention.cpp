#include "ops/attention/hashed_attention.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <limits>

#include "ops/runtime/carry.h"

namespace transnormer::ops {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// Of the scores that are made at a time: what a CPU's cache holds, and what a GPU does not mind.
constexpr std::int64_t kCpuBytes = 4LL << 20;
constexpr std::int64_t kGpuBytes = 256LL << 20;

// Rows of x, [.., dim] by indices of any shape.
at::Tensor rows(const at::Tensor& x, const at::Tensor& index) {
  return x.index_select(0, index.flatten()).unflatten(0, index.sizes());
}

// Neighbouring blocks and the keys that they look at: those of the block itself, and then those of
// the others.
struct Tile {
  std::int64_t first;
  std::int64_t count;
  at::Tensor queries;  // int64 [count, length], the tokens
  at::Tensor keys;     // int64 [count, slots], the tokens
  at::Tensor unseen;   // bool [count, length, slots]
  at::Tensor itself;   // bool [length, slots], or one of each block
};

class Tiles {
 public:
  Tiles(const HashedPlaces& places, const at::Tensor& q)
      : p_(places),
        blocks_(places.source.size(0) / places.length),
        slots_(places.length * (1 + static_cast<std::int64_t>(places.others.size()))),
        count_(std::clamp<std::int64_t>(
            (q.is_cpu() ? kCpuBytes : kGpuBytes) / (4 * places.length * slots_), 1, blocks_)) {}

  [[nodiscard]] std::int64_t blocks() const { return blocks_; }

  template <typename Body>
  void each(const Body& body) const {
    for (std::int64_t first = 0; first < blocks_; first += count_) {
      body(tile(first, std::min(count_, blocks_ - first)));
    }
  }

  // [count, length, slots]; infinitely low where nothing is seen.
  [[nodiscard]] static at::Tensor scores(const Tile& tile, const at::Tensor& q,
                                         const at::Tensor& k) {
    return at::bmm(q, k.mT())
        .masked_fill_(tile.unseen, -std::numeric_limits<float>::infinity())
        .masked_fill_(tile.itself, kScoreOfItself);
  }

  // Adds what came for a tile's keys, [count, slots, dim], to where they stand.
  void add_to_keys(const at::Tensor& gradient, const Tile& tile, const at::Tensor& of_slots) const {
    const at::Tensor blocks = gradient.view({blocks_, p_.length, gradient.size(1)});
    blocks.narrow(0, tile.first, tile.count).add_(of_slots.narrow(1, 0, p_.length));
    std::int64_t slot = p_.length;
    for (const at::Tensor& other : p_.others) {
      blocks.index_add_(0, other.narrow(0, tile.first, tile.count),
                        of_slots.narrow(1, slot, p_.length));
      slot += p_.length;
    }
  }

  // What came for each place, [places, dim], as the sum over the places of each token.
  [[nodiscard]] at::Tensor of_tokens(const at::Tensor& by_place) const {
    at::Tensor sum = by_place.index_select(0, p_.place[0]);
    for (std::int64_t round = 1; round < p_.place.size(0); ++round) {
      sum += by_place.index_select(0, p_.place[round]);
    }
    return sum;
  }

 private:
  [[nodiscard]] Tile tile(std::int64_t first, std::int64_t count) const {
    const auto integers = p_.source.options();
    const at::Tensor own = at::arange(first, first + count, integers);
    std::vector<at::Tensor> blocks{own};
    for (const at::Tensor& other : p_.others) {
      blocks.push_back(other.narrow(0, first, count));
    }
    const at::Tensor looked_at = at::stack(blocks, 1);  // [count, 1 + others]
    const at::Tensor inside = at::arange(p_.length, integers);
    const auto by_block = [&](const at::Tensor& x) { return x.view({blocks_, p_.length}); };
    const auto of_keys = [&](const at::Tensor& x) {
      return rows(by_block(x), looked_at).flatten(1);
    };
    // Numbers that equal no other where there is no token, or a block for the second time.
    at::Tensor query_group = by_block(p_.group).narrow(0, first, count).clone();
    query_group.masked_fill_(query_group < 0, -2);
    const at::Tensor again = looked_at == own.unsqueeze(1);
    again.select(1, 0).fill_(false);
    const at::Tensor key_group =
        of_keys(p_.group).masked_fill_(again.repeat_interleave(p_.length, 1), -3);
    at::Tensor unseen =
        query_group.to(at::kInt).unsqueeze(2) != key_group.to(at::kInt).unsqueeze(1);
    if (p_.reach > 0) {
      const at::Tensor others = at::arange(looked_at.size(1), integers).unsqueeze(1) * p_.length;
      const at::Tensor back = inside.unsqueeze(1) + (others - inside).flatten();
      unseen.logical_or_((back < 1).logical_or_(back > p_.reach));
    }
    const at::Tensor queries = by_block(p_.source).narrow(0, first, count);
    const at::Tensor keys = of_keys(p_.source);
    at::Tensor itself = at::eye(p_.length, slots_, integers.dtype(at::kBool));
    if (p_.reach == 0) {  // other blocks may be of other rounds, and have it too
      const at::Tensor met = queries.to(at::kInt).unsqueeze(2) == keys.to(at::kInt).unsqueeze(1);
      itself = met.logical_and_(unseen.logical_not()).logical_or_(itself);
    }
    return {.first = first,
            .count = count,
            .queries = queries,
            .keys = keys,
            .unseen = unseen,
            .itself = itself};
  }

  const HashedPlaces& p_;
  std::int64_t blocks_;
  std::int64_t slots_;
  std::int64_t count_;
};

struct Attended {
  at::Tensor out;     // [tokens, value_dim]
  at::Tensor sums;    // of a place's exponentials, their logarithm, [places]
  at::Tensor shares;  // of a place in its token, zero where none stands, [places]
};

Attended forward_of(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                    const HashedPlaces& places) {
  const Tiles tiles(places, q);
  const at::Tensor by_place = at::empty({places.source.size(0), v.size(1)}, v.options());
  const at::Tensor sums = at::empty({places.source.size(0)}, v.options());
  tiles.each([&](const Tile& tile) {
    const at::Tensor scores = Tiles::scores(tile, rows(q, tile.queries), rows(k, tile.keys));
    const at::Tensor sum = at::logsumexp(scores, {-1}, /*keepdim=*/true);
    const std::int64_t first = tile.first * places.length;
    const std::int64_t count = tile.count * places.length;
    by_place.narrow(0, first, count)
        .copy_(at::bmm((scores - sum).exp_(), rows(v, tile.keys)).flatten(0, 1));
    sums.narrow(0, first, count).copy_(sum.flatten());
  });
  // Not by the logarithm of the sum over rounds: at -1e5 fp32 would lose its last digits.
  const at::Tensor shares = at::softmax(rows(sums, places.place), 0);  // [rounds, tokens]
  at::Tensor out = at::zeros_like(v);
  for (std::int64_t round = 0; round < places.place.size(0); ++round) {
    out.addcmul_(by_place.index_select(0, places.place[round]), shares[round].unsqueeze(1));
  }
  return {.out = out,
          .sums = sums,
          .shares = at::zeros_like(sums).index_copy_(0, places.place.flatten(), shares.flatten())};
}

struct Hashed : torch::autograd::Function<Hashed> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& q, const at::Tensor& k,
                            const at::Tensor& v, const HashedPlaces& places) {
    const Attended attended = forward_of(q, k, v, places);
    context->save_for_backward({q, k, v, attended.out, attended.sums, attended.shares});
    carry(context, places);
    return attended.out;
  }

  // With p the weights over all rounds: d s = p (g.v - g.o).
  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const variable_list saved = context->get_saved_variables();
    const at::Tensor& q = saved[0];
    const at::Tensor& k = saved[1];
    const at::Tensor& v = saved[2];
    const auto& places = carried<HashedPlaces>(context);
    const at::Tensor g = gradients[0].contiguous();
    const at::Tensor mean = (g * saved[3]).sum(-1);
    const Tiles tiles(places, q);
    const std::int64_t count = places.source.size(0);
    const at::Tensor d_q = at::empty({count, q.size(1)}, q.options());
    const at::Tensor d_k = at::zeros({count, k.size(1)}, k.options());
    const at::Tensor d_v = at::zeros({count, v.size(1)}, v.options());
    tiles.each([&](const Tile& tile) {
      const at::Tensor query = rows(q, tile.queries);
      const at::Tensor key = rows(k, tile.keys);
      const at::Tensor gradient = rows(g, tile.queries);
      const auto of_places = [&](const at::Tensor& x) {
        return x.view({tiles.blocks(), places.length, 1}).narrow(0, tile.first, tile.count);
      };
      const at::Tensor weights =
          (Tiles::scores(tile, query, key) - of_places(saved[4])).exp_().mul_(of_places(saved[5]));
      tiles.add_to_keys(d_v, tile, at::bmm(weights.mT(), gradient));
      const at::Tensor d_scores = at::bmm(gradient, rows(v, tile.keys).mT())
                                      .sub_(rows(mean, tile.queries).unsqueeze(2))
                                      .mul_(weights)
                                      .masked_fill_(tile.itself, 0);
      d_q.narrow(0, tile.first * places.length, tile.count * places.length)
          .copy_(at::bmm(d_scores, key).flatten(0, 1));
      tiles.add_to_keys(d_k, tile, at::bmm(d_scores.mT(), query));
    });
    return {tiles.of_tokens(d_q), tiles.of_tokens(d_k), tiles.of_tokens(d_v), {}};
  }
};

}  // namespace

at::Tensor hashed_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                            const HashedPlaces& places) {
  return at::GradMode::is_enabled() ? Hashed::apply(q, k, v, places)
                                    : forward_of(q, k, v, places).out;
}

}  // namespace transnormer::ops
