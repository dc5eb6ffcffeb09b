// Softmax attention to learned combinations of the keys and values of all places. Wang et al. 2020,
// "Linformer: Self-Attention with Linear Complexity".
#include <ATen/ATen.h>

#include <algorithm>

#include "config/fields.h"
#include "model/attention/registry.h"
#include "model/attention/summary_attention.h"
#include "util/error.h"

namespace transnormer {
namespace {

struct LinformerConfig {
  static constexpr const char* kName = "linformer";
  static constexpr const char* kHelp = "Softmax attention to learned combinations of all tokens";
  static constexpr const char* kFormula = "softmax(q·(E k) / sqrt(dh)) E";
  static constexpr const char* kCost = "O(n r)";
  static constexpr Abilities kAbilities{.causal = false, .decodes = false, .lrpe = false};

  std::int64_t rank = 128;

  void visit(FieldVisitor& visitor) {
    visitor.integer({"rank", "Combinations that a head makes of a sequence's keys and values"},
                    rank, {1, kMaxSize});
  }
  [[nodiscard]] std::vector<std::string> faults(const AttentionSettings& settings) const;
  [[nodiscard]] std::shared_ptr<Attention> make(const AttentionSettings& settings) const;
  bool operator==(const LinformerConfig&) const = default;
};

// The projection is a parameter (the published one is neither trained nor saved), the same for keys
// and values: `projection`, [heads, rank, data.tokens_per_sample], a column for each place. A
// shorter sequence uses the first columns.
class Linformer : public SummaryAttention, public Initializable {
 public:
  Linformer(const LinformerConfig& config, const AttentionSettings& settings)
      : SummaryAttention(settings),
        rank_(config.rank),
        places_(settings.max_positions),
        projection_(register_parameter("projection", at::empty({settings.heads, rank_, places_},
                                                               at::device(settings.device)))) {}

  void initialize(const Initializer& initializer, const std::string& prefix) override {
    const at::NoGradGuard no_gradients;
    initializer.normal(projection_, prefix + "projection", 0.02);
  }

  // The projection of keys and values, and the attention to what it makes.
  [[nodiscard]] double flops_per_token(std::int64_t) const override {
    return 8 * static_cast<double>(settings().inner_dim() * rank_);
  }

  // The projected keys and values too.
  [[nodiscard]] double kept_bytes_per_token(at::ScalarType compute) const override {
    return ProjectedAttention::kept_bytes_per_token(compute) +
           8 * static_cast<double>(settings().inner_dim() * rank_) /
               static_cast<double>(std::max<std::int64_t>(places_, 1));
  }

  [[nodiscard]] std::vector<ParameterGroup> groups() const override {
    std::vector<ParameterGroup> all = ProjectedAttention::groups();
    all.push_back({"projection", {projection_}});
    return all;
  }

 protected:
  [[nodiscard]] std::int64_t summaries_of(std::int64_t) const override { return rank_; }

  // What stands behind a row's last token is zero, so that its columns add nothing. All rows' keys
  // and values of a head lie side by side: one product a head, in the type of the products.
  [[nodiscard]] Summary summarize(const at::Tensor& k, const at::Tensor& v,
                                  const at::Tensor&) const override {
    const std::int64_t time = k.size(1);
    if (time > places_) {
      throw UserError("data.tokens_per_sample: expected at least " + std::to_string(time) +
                      ", the tokens of a sequence, since the attention \"linformer\" has a column "
                      "for each place, got " +
                      std::to_string(places_));
    }
    const at::Tensor columns = projection_.narrow(2, 0, time).to(k.scalar_type());
    const at::Tensor both = at::stack({k, v}).permute({3, 2, 0, 1, 4});
    const at::Tensor made = at::bmm(columns, both.flatten(2))
                                .view({k.size(2), rank_, 2, k.size(0), k.size(3)})
                                .permute({2, 3, 1, 0, 4});
    return {made[0], made[1], {}};
  }

 private:
  std::int64_t rank_;
  std::int64_t places_;
  at::Tensor projection_;
};

std::vector<std::string> LinformerConfig::faults(const AttentionSettings& settings) const {
  if (rank <= settings.max_positions) {
    return {};
  }
  return {"rank: expected at most data.tokens_per_sample (" +
          std::to_string(settings.max_positions) + "), got " + std::to_string(rank)};
}

std::shared_ptr<Attention> LinformerConfig::make(const AttentionSettings& settings) const {
  return std::make_shared<Linformer>(*this, settings);
}

[[maybe_unused]] const bool kAdded = add_attention<LinformerConfig>();

}  // namespace
}  // namespace transnormer
