// Nystroem's approximation of softmax attention by landmarks, the means of segments. Xiong et al.
// 2021, "Nystroemformer".
#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "config/fields.h"
#include "model/attention/registry.h"
#include "model/attention/summary_attention.h"
#include "ops/attention/groups.h"
#include "ops/attention/landmarks.h"
#include "ops/attention/summaries.h"

namespace transnormer {
namespace {

struct NystromformerConfig {
  static constexpr const char* kName = "nystromformer";
  static constexpr const char* kHelp = "Softmax attention approximated by way of landmarks";
  static constexpr const char* kFormula = "softmax(q·kl) pinv(softmax(ql·kl)) softmax(ql·k)";
  static constexpr const char* kCost = "O(n m)";
  static constexpr Abilities kAbilities{.causal = false, .decodes = false, .lrpe = false};

  std::int64_t landmarks = 128;
  std::int64_t conv = 0;

  void visit(FieldVisitor& visitor) {
    visitor.integer({"landmarks", "Segments of a sequence whose means stand for it"}, landmarks,
                    {1, kMaxSize});
    visitor.integer({"conv", "Width of a convolution of the values that is added, odd; 0: none",
                     OnResume::refuse, "tokens"},
                    conv, {0, kMaxSize});
  }
  [[nodiscard]] std::vector<std::string> faults(const AttentionSettings&) const {
    if (conv == 0 || conv % 2 == 1) {
      return {};
    }
    return {"conv: expected 0 or an odd number, got " + std::to_string(conv)};
  }
  [[nodiscard]] std::shared_ptr<Attention> make(const AttentionSettings& settings) const;
  bool operator==(const NystromformerConfig&) const = default;
};

// Over time, one filter a head: `weight` [heads, 1, width, 1], no bias.
class LandmarkConv : public torch::nn::Module, public Initializable {
 public:
  LandmarkConv(std::int64_t heads, std::int64_t width, at::Device device)
      : weight_(register_parameter("weight", at::empty({heads, 1, width, 1}, at::device(device)))) {
  }

  // v: [rows, time, heads, dim], zero where there is no token -> the same, in fp32.
  [[nodiscard]] at::Tensor forward(const at::Tensor& v) const {
    const std::int64_t width = weight_.size(2);
    return at::conv2d(v.to(at::kFloat).transpose(1, 2), weight_, {}, {1, 1}, {width / 2, 0}, {1, 1},
                      weight_.size(0))
        .transpose(1, 2);
  }

  // LibTorch's start of a convolution.
  void initialize(const Initializer& initializer, const std::string& prefix) override {
    const at::NoGradGuard no_gradients;
    initializer.uniform(weight_, prefix + "weight",
                        1 / std::sqrt(static_cast<double>(weight_.size(2))));
  }

 private:
  at::Tensor weight_;
};

// F pinv(A) B v with F = softmax(q kl^T), A = softmax(ql kl^T), B = softmax(ql k^T), ql and kl the
// landmarks, q and k times head_dim^-1/4 each; all in fp32. Landmarks are of the real tokens of
// each sequence, and the pseudo-inverse is scaled by each matrix for itself, not over the batch as
// published. There are no weights of single tokens to drop.
class Nystromformer : public ProjectedAttention {
 public:
  Nystromformer(const NystromformerConfig& config, const AttentionSettings& settings)
      : ProjectedAttention(settings, usual_heads(settings), std::sqrt(0.5), NormKind::none),
        landmarks_(config.landmarks),
        conv_width_(config.conv),
        scale_(1 / std::sqrt(static_cast<double>(settings.head_dim()))) {
    if (config.conv > 0) {
      conv_ = register_module("landmark_conv", std::make_shared<LandmarkConv>(
                                                   settings.heads, config.conv, settings.device));
    }
  }

  [[nodiscard]] std::unique_ptr<AttentionState> make_state(std::int64_t) const override {
    return nullptr;
  }
  [[nodiscard]] StateBytes state_bytes(at::ScalarType) const override { return {}; }

  // Scores and sums of F and B; those of A and its inverse's product once a sequence, and four
  // products in each of six iterations.
  [[nodiscard]] double flops_per_token(std::int64_t length) const override {
    const auto width = static_cast<double>(settings().inner_dim());
    const auto m = static_cast<double>(std::min(landmarks_, length));
    const double once = 4 * width * m * m + 48 * static_cast<double>(settings().heads) * m * m * m;
    return 8 * width * m + once / static_cast<double>(length) +
           2 * width * static_cast<double>(conv_width_);
  }

  // Beside the usual: four times landmarks as wide as a token, A and the inverse's iterations.
  [[nodiscard]] double kept_bytes_per_token(at::ScalarType compute) const override {
    const std::int64_t length = std::max<std::int64_t>(settings().max_positions, 1);
    const auto m = static_cast<double>(std::min(landmarks_, length));
    const double once = 4 * static_cast<double>(settings().inner_dim()) * m +
                        27 * static_cast<double>(settings().heads) * m * m;
    return ProjectedAttention::kept_bytes_per_token(compute) +
           4 * once / static_cast<double>(length);
  }

  [[nodiscard]] std::vector<ParameterGroup> groups() const override {
    std::vector<ParameterGroup> all = ProjectedAttention::groups();
    if (conv_) {
      all.push_back({"landmark_conv", conv_->parameters()});
    }
    return all;
  }

 protected:
  [[nodiscard]] at::Tensor attend(const Projected& in, const ForwardContext& context,
                                  AttentionState*) override {
    return ops::by_rows(context.visibility, {in.q, in.k, in.v},
                        [&](const std::vector<at::Tensor>& rows, const at::Tensor& lengths) {
                          return of_rows(rows[0], rows[1], rows[2], lengths);
                        });
  }

 private:
  [[nodiscard]] at::Tensor of_rows(const at::Tensor& query, const at::Tensor& key,
                                   const at::Tensor& value, const at::Tensor& lengths) const {
    const at::Tensor q = query.to(at::kFloat);
    const at::Tensor k = key.to(at::kFloat);
    const at::Tensor v = value.to(at::kFloat);
    const ops::Segments segments(q.size(0), q.size(1), landmarks_, lengths, q.device());
    const at::Tensor ql = segments.means(q);
    const at::Tensor kl = segments.means(k);
    const at::Tensor inverse =
        ops::iterated_pseudo_inverse(between_landmarks(ql, kl, segments.counts()));
    const at::Tensor seen = ops::attend_to_summaries(ql, k, v, scale_, lengths, {});
    const at::Tensor weighed = at::matmul(inverse, seen.transpose(1, 2)).transpose(1, 2);
    at::Tensor y = ops::attend_to_summaries(q, kl, weighed, scale_, segments.counts(), {});
    if (conv_) {
      y = y + conv_->forward(v);
    }
    return y.to(query.scalar_type());
  }

  // softmax(ql kl^T), [rows, heads, m, m]; zero where a row has fewer landmarks.
  [[nodiscard]] at::Tensor between_landmarks(const at::Tensor& ql, const at::Tensor& kl,
                                             const at::Tensor& counts) const {
    const at::Tensor scores = at::matmul(ql.transpose(1, 2) * scale_, kl.permute({0, 2, 3, 1}));
    if (!counts.defined()) {
      return scores.softmax(-1);
    }
    const at::Tensor none = ops::is_token(counts, ql.size(1)).logical_not();
    return scores
        .masked_fill(none.unsqueeze(1).unsqueeze(1), -std::numeric_limits<float>::infinity())
        .softmax(-1)
        .masked_fill(none.unsqueeze(1).unsqueeze(3), 0);
  }

  std::int64_t landmarks_;
  std::int64_t conv_width_;
  double scale_;
  std::shared_ptr<LandmarkConv> conv_;  // null without
};

std::shared_ptr<Attention> NystromformerConfig::make(const AttentionSettings& settings) const {
  return std::make_shared<Nystromformer>(*this, settings);
}

[[maybe_unused]] const bool kAdded = add_attention<NystromformerConfig>();

}  // namespace
}  // namespace transnormer
