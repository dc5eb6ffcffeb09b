// The quadratic gated attention unit: A_ij = relu(q_i.k_j / P + w(j - i))^2 with P =
// data.tokens_per_sample and a learned w for each distance. See gated_unit.h.
//
// The published code fails on sequences longer than its table; here distances beyond it take the
// table's last entry, and P stays what it was in training, so that a token's output depends on no
// length. It sees padding; here nothing does.
#include <ATen/ATen.h>

#include <limits>

#include "model/attention/gated_unit.h"
#include "model/attention/key_value_cache.h"
#include "model/attention/registry.h"
#include "ops/attention/squared_relu.h"

namespace transnormer {
namespace {

struct FlashQuadConfig : GatedUnitConfig {
  static constexpr const char* kName = "flash_quad";
  static constexpr const char* kHelp =
      "Gated attention unit with squared ReLU over the whole sequence, a whole layer";
  static constexpr const char* kFormula = "relu(q·k / P + w(j - i))^2";
  static constexpr const char* kCost = "O(n^2)";
  static constexpr Abilities kAbilities{.lrpe = false, .separate_queries = false};

  void visit(FieldVisitor& visitor) {
    visit_unit(visitor, "Queries whose scores are made at a time; changes no result");
  }
  [[nodiscard]] std::shared_ptr<Block> make(const BlockSettings& settings) const;
  bool operator==(const FlashQuadConfig&) const = default;
};

class FlashQuad : public GatedUnit {
 public:
  FlashQuad(const GatedUnitConfig& config, const BlockSettings& settings)
      : GatedUnit(config, settings, {"query", "key"}) {}

  // The keys and values of all tokens.
  [[nodiscard]] std::unique_ptr<AttentionState> make_state(std::int64_t) const override {
    return std::make_unique<KeyValueCache>(std::numeric_limits<std::int64_t>::max());
  }
  [[nodiscard]] StateBytes state_bytes(at::ScalarType compute) const override {
    return {.per_token =
                4 * static_cast<double>(config().key_dim) +
                static_cast<double>(c10::elementSize(compute)) * static_cast<double>(width())};
  }

 protected:
  [[nodiscard]] at::Tensor attend_rows(const at::Tensor& z, const at::Tensor& v,
                                       const at::Tensor& positions, bool causal) const override {
    const std::vector<at::Tensor> qk = parts().turned(z, positions);
    return scored(qk[0], qk[1], v, causal);
  }

  [[nodiscard]] at::Tensor go_on(const at::Tensor& z, const at::Tensor& v,
                                 AttentionState& state) const override {
    auto& cache = static_cast<KeyValueCache&>(state);
    const at::Tensor positions =
        at::arange(cache.size(), cache.size() + z.size(1), z.options().dtype(at::kLong));
    const std::vector<at::Tensor> qk = parts().turned(z, positions);
    cache.append(qk[1].unsqueeze(2), v.unsqueeze(2));
    return scored(qk[0], cache.keys().squeeze(2), cache.values().squeeze(2), true);
  }

  [[nodiscard]] double attention_flops(std::int64_t length) const override {
    return 2 * static_cast<double>(config().key_dim + width()) * mean_seen(length);
  }

 private:
  [[nodiscard]] at::Tensor scored(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                  bool causal) const {
    return ops::squared_relu_attention(q, k, v, parts().offsets(q.size(1), k.size(1)),
                                       {.scale = 1 / static_cast<double>(max_positions()),
                                        .causal = causal,
                                        .tile = config().chunk});
  }
};

std::shared_ptr<Block> FlashQuadConfig::make(const BlockSettings& settings) const {
  return std::make_shared<FlashQuad>(*this, settings);
}

[[maybe_unused]] const bool kAdded = add_attention<FlashQuadConfig>();

}  // namespace
}  // namespace transnormer
