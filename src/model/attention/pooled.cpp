// Softmax attention to keys and values that are averages of neighbours.
#include <ATen/ATen.h>

#include <algorithm>

#include "config/fields.h"
#include "model/attention/registry.h"
#include "model/attention/summary_attention.h"

namespace transnormer {
namespace {

struct PooledAttentionConfig {
  static constexpr const char* kName = "pooled";
  static constexpr const char* kHelp = "Softmax attention to averages of neighbouring tokens";
  static constexpr const char* kFormula = "softmax(q·mean(k) / sqrt(dh))";
  static constexpr const char* kCost = "O(n^2/s)";
  static constexpr Abilities kAbilities{.causal = false, .decodes = false, .lrpe = false};

  std::int64_t stride = 4;

  void visit(FieldVisitor& visitor) {
    visitor.integer(
        {"stride", "Neighbours whose keys and values are averaged", OnResume::refuse, "tokens"},
        stride, {1, kMaxSize});
  }
  [[nodiscard]] std::shared_ptr<Attention> make(const AttentionSettings& settings) const;
  bool operator==(const PooledAttentionConfig&) const = default;
};

// Groups of `stride` neighbours are counted over the real tokens; the last one averages what it
// has.
class PooledAttention : public SummaryAttention {
 public:
  PooledAttention(const PooledAttentionConfig& config, const AttentionSettings& settings)
      : SummaryAttention(settings), stride_(config.stride) {}

  // The averages' sums too.
  [[nodiscard]] double flops_per_token(std::int64_t length) const override {
    const auto width = static_cast<double>(settings().inner_dim());
    return 4 * width * static_cast<double>(summaries_of(length)) + 2 * width;
  }

  // The averages too.
  [[nodiscard]] double kept_bytes_per_token(at::ScalarType compute) const override {
    return ProjectedAttention::kept_bytes_per_token(compute) +
           8 * static_cast<double>(settings().inner_dim()) / static_cast<double>(stride_);
  }

 protected:
  [[nodiscard]] std::int64_t summaries_of(std::int64_t time) const override {
    return (time - 1) / stride_ + 1;
  }

  [[nodiscard]] Summary summarize(const at::Tensor& k, const at::Tensor& v,
                                  const at::Tensor& lengths) const override {
    const std::int64_t time = k.size(1);
    const std::int64_t stride = std::min(stride_, time);
    const std::int64_t groups = summaries_of(time);
    const auto integers = k.options().dtype(at::kLong);
    const at::Tensor last =
        lengths.defined() ? lengths.unsqueeze(1) : at::full({1, 1}, time, integers);
    // [rows or 1, groups]; at least 1 where a row has no such group.
    const at::Tensor members =
        (last - at::arange(groups, integers) * stride).clamp(std::int64_t{1}, stride);
    const auto averages = [&](const at::Tensor& x) {
      const at::Tensor whole = at::constant_pad_nd(x, {0, 0, 0, 0, 0, groups * stride - time});
      const at::Tensor sums = whole.unflatten(1, {groups, stride}).sum(2, false, at::kFloat);
      return (sums / members.unsqueeze(-1).unsqueeze(-1)).to(x.scalar_type());
    };
    return {averages(k), averages(v),
            lengths.defined() ? (lengths - 1).div(stride, "floor") + 1 : at::Tensor()};
  }

 private:
  std::int64_t stride_;
};

std::shared_ptr<Attention> PooledAttentionConfig::make(const AttentionSettings& settings) const {
  return std::make_shared<PooledAttention>(*this, settings);
}

[[maybe_unused]] const bool kAdded = add_attention<PooledAttentionConfig>();

}  // namespace
}  // namespace transnormer
