// The gated attention unit in linear time: squared-ReLU scores inside chunks of c tokens, linear
// attention with queries and keys of its own across them:
//   A v = sum_{j in chunk} relu(q_i.k_j / c + w(j - i))^2 v_j + q'_i M,  M_c = sum k'_j v_j^T / c,
// where M is the sum of M_c over the chunks before the token's own or, in a bidirectional model,
// over all of them, its own too. See gated_unit.h.
//
// In the published code what fills the last chunk of a bidirectional model has keys and values of
// the biases and is seen; here only tokens are, and chunks are counted over them.
#include <ATen/ATen.h>

#include <algorithm>

#include "model/attention/gated_unit.h"
#include "model/attention/key_value_cache.h"
#include "model/attention/registry.h"
#include "ops/attention/chunk_sums.h"
#include "ops/attention/squared_relu.h"

namespace transnormer {
namespace {

struct FlashConfig : GatedUnitConfig {
  static constexpr const char* kName = "flash";
  static constexpr const char* kHelp =
      "Gated attention unit: squared ReLU in chunks, linear across them; a whole layer";
  static constexpr const char* kFormula = "relu(q·k / c + w(j - i))^2 in chunks, q'·k' / c across";
  static constexpr const char* kCost = "O(n c)";
  static constexpr Abilities kAbilities{.lrpe = false, .separate_queries = false};

  void visit(FieldVisitor& visitor) { visit_unit(visitor, "Length of the chunks"); }
  [[nodiscard]] std::shared_ptr<Block> make(const BlockSettings& settings) const;
  bool operator==(const FlashConfig&) const = default;
};

// Closed chunks as the sum of k' v^T / c, [batch, key_dim, width] in fp32, and the keys, both kinds
// as two heads, and values of the open one.
struct FlashState : AttentionState, RepeatableState {
  FlashState(at::Tensor start, std::int64_t chunk) : sums(std::move(start)), open(chunk) {}
  [[nodiscard]] std::int64_t bytes() const override {
    return static_cast<std::int64_t>(sums.nbytes()) + open.bytes();
  }
  void repeat(std::int64_t times) override {
    repeat_row(sums, times);
    open.repeat(times);
  }
  at::Tensor sums;
  KeyValueCache open;
  std::int64_t tokens = 0;
};

// The queries and keys of GatedUnitParts::turned().
enum Turned : std::size_t { kQuery, kKey, kGlobalQuery, kGlobalKey };

class Flash : public GatedUnit {
 public:
  Flash(const GatedUnitConfig& config, const BlockSettings& settings)
      : GatedUnit(config, settings, {"query", "key", "global_query", "global_key"}) {}

  [[nodiscard]] std::unique_ptr<AttentionState> make_state(std::int64_t batch) const override {
    return std::make_unique<FlashState>(
        at::zeros({batch, config().key_dim, width()}, at::device(device())), config().chunk);
  }
  // With a chunk that is nearly full.
  [[nodiscard]] StateBytes state_bytes(at::ScalarType compute) const override {
    const auto keys = static_cast<double>(config().key_dim);
    const auto values = static_cast<double>(width());
    return {.fixed = 4 * keys * values +
                     static_cast<double>(config().chunk) *
                         (8 * keys + static_cast<double>(c10::elementSize(compute)) * values)};
  }

 protected:
  [[nodiscard]] at::Tensor attend_rows(const at::Tensor& z, const at::Tensor& v,
                                       const at::Tensor& positions, bool causal) const override {
    return in_chunks(parts().turned(z, positions), v, causal, {});
  }

  [[nodiscard]] at::Tensor go_on(const at::Tensor& z, const at::Tensor& v,
                                 AttentionState& state) const override {
    auto& past = static_cast<FlashState&>(state);
    const std::int64_t time = z.size(1);
    const std::vector<at::Tensor> turned = parts().turned(
        z, at::arange(past.tokens, past.tokens + time, z.options().dtype(at::kLong)));
    past.tokens += time;
    const std::int64_t rest =
        past.open.size() == 0 ? 0 : std::min(time, config().chunk - past.open.size());
    std::vector<at::Tensor> parts_of_output;
    if (rest > 0) {
      parts_of_output.push_back(fill_open(narrowed(turned, 0, rest), v.narrow(1, 0, rest), past));
    }
    if (rest < time) {
      parts_of_output.push_back(
          fresh(narrowed(turned, rest, time - rest), v.narrow(1, rest, time - rest), past));
    }
    return parts_of_output.size() == 1 ? parts_of_output[0] : at::cat(parts_of_output, 1);
  }

  [[nodiscard]] double attention_flops(std::int64_t length) const override {
    const auto keys = static_cast<double>(config().key_dim);
    const auto values = static_cast<double>(width());
    return 2 * (keys + values) * mean_seen(std::min(config().chunk, length)) + 4 * keys * values;
  }

 private:
  static std::vector<at::Tensor> narrowed(const std::vector<at::Tensor>& all, std::int64_t first,
                                          std::int64_t count) {
    std::vector<at::Tensor> parts;
    for (const at::Tensor& each : all) {
      parts.push_back(each.narrow(1, first, count));
    }
    return parts;
  }

  [[nodiscard]] double scale() const { return 1 / static_cast<double>(config().chunk); }

  // From a chunk's start on. sums: of the chunks before; undefined: none.
  [[nodiscard]] at::Tensor in_chunks(const std::vector<at::Tensor>& turned, const at::Tensor& v,
                                     bool causal, const at::Tensor& sums) const {
    const std::int64_t time = v.size(1);
    const std::int64_t length = std::min(config().chunk, time);
    const std::int64_t chunks = (time + length - 1) / length;
    // [rows, time, dim] -> [rows, chunks, length, dim], zeros behind the end.
    const auto cut = [&](const at::Tensor& x) {
      const at::Tensor whole =
          chunks * length == time ? x : at::constant_pad_nd(x, {0, 0, 0, chunks * length - time});
      return whole.reshape({x.size(0), chunks, length, x.size(2)});
    };
    const at::Tensor value = cut(v);
    const at::Tensor local = ops::squared_relu_attention(
        cut(turned[kQuery]).flatten(0, 1), cut(turned[kKey]).flatten(0, 1), value.flatten(0, 1),
        parts().offsets(length, length), {.scale = scale(), .causal = causal, .tile = length});
    const at::Tensor inside = local.view({v.size(0), chunks * length, v.size(2)});
    if (!causal) {
      const at::Tensor all = at::matmul(turned[kGlobalKey].mT(), v.to(at::kFloat)) * scale();
      return inside.narrow(1, 0, time) + at::matmul(turned[kGlobalQuery], all);
    }
    if (chunks == 1 && !sums.defined()) {
      return inside.narrow(1, 0, time);
    }
    const at::Tensor across = ops::attend_earlier_chunks(
        cut(turned[kGlobalQuery]), cut(turned[kGlobalKey] * scale()), value, sums);
    return (inside + across.flatten(1, 2)).narrow(1, 0, time);
  }

  // Tokens that the open chunk has room for.
  [[nodiscard]] at::Tensor fill_open(const std::vector<at::Tensor>& turned, const at::Tensor& v,
                                     FlashState& past) const {
    keep_open(turned, v, past);
    const at::Tensor keys = past.open.keys();
    const at::Tensor values = past.open.values().squeeze(2);
    const at::Tensor local = ops::squared_relu_attention(
        turned[kQuery], keys.select(2, 0), values, parts().offsets(v.size(1), keys.size(1)),
        {.scale = scale(), .causal = true, .tile = config().chunk});
    const at::Tensor out = at::baddbmm(local, turned[kGlobalQuery], past.sums);
    if (past.open.size() == config().chunk) {
      close(keys.select(2, 1), values, past);
      past.open.clear();
    }
    return out;
  }

  // Tokens from a chunk's start on.
  [[nodiscard]] at::Tensor fresh(const std::vector<at::Tensor>& turned, const at::Tensor& v,
                                 FlashState& past) const {
    const std::int64_t left = v.size(1) % config().chunk;
    const std::int64_t closed = v.size(1) - left;
    at::Tensor out = in_chunks(turned, v, true, past.sums);
    if (closed > 0) {
      close(turned[kGlobalKey].narrow(1, 0, closed), v.narrow(1, 0, closed), past);
    }
    if (left > 0) {
      keep_open(narrowed(turned, closed, left), v.narrow(1, closed, left), past);
    }
    return out;
  }

  static void keep_open(const std::vector<at::Tensor>& turned, const at::Tensor& v,
                        FlashState& past) {
    past.open.append(at::stack({turned[kKey], turned[kGlobalKey]}, 2), v.unsqueeze(2));
  }

  void close(const at::Tensor& global_keys, const at::Tensor& v, FlashState& past) const {
    past.sums.baddbmm_(global_keys.mT(), v.to(at::kFloat), 1, scale());
  }
};

std::shared_ptr<Block> FlashConfig::make(const BlockSettings& settings) const {
  return std::make_shared<Flash>(*this, settings);
}

[[maybe_unused]] const bool kAdded = add_attention<FlashConfig>();

}  // namespace
}  // namespace transnormer
