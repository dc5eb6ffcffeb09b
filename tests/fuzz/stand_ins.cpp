// Settings as those of src/model/attention and src/optim, which need LibTorch and all operators to
// be built. Only the names and kinds of the keys matter to a reader.
#include <array>
#include <cstdint>

#include "config/config.h"
#include "config/fields.h"
#include "config/names.h"
#include "config/union.h"

namespace transnormer {
namespace {

struct Diag {
  static constexpr const char* kName = "diag";
  static constexpr const char* kHelp = "";
  ScoreKind score = ScoreKind::softmax;
  std::int64_t block = 64;
  NormKind output_norm = NormKind::none;
  void visit(FieldVisitor& visitor) {
    visit_choice(visitor, {"score", ""}, score, kScoreNames);
    visitor.integer({"block", ""}, block, {1, kMaxSize});
    visit_choice(visitor, {"output_norm", ""}, output_norm, kOutputNormNames);
  }
  bool operator==(const Diag&) const = default;
};

struct Norm {
  static constexpr const char* kName = "norm";
  static constexpr const char* kHelp = "";
  FeatureMap kernel = FeatureMap::elu1;
  NormKind output_norm = NormKind::srms;
  void visit(FieldVisitor& visitor) {
    visit_choice(visitor, {"kernel", ""}, kernel, kFeatureMapNames);
    visit_choice(visitor, {"output_norm", ""}, output_norm, kOutputNormNames);
  }
  bool operator==(const Norm&) const = default;
};

struct Softmax {
  static constexpr const char* kName = "softmax";
  static constexpr const char* kHelp = "";
  void visit(FieldVisitor&) {}
  bool operator==(const Softmax&) const = default;
};

struct AdamW {
  static constexpr const char* kName = "adamw";
  static constexpr const char* kHelp = "";
  std::array<double, 2> betas{0.9, 0.98};
  double eps = 1e-8;
  void visit(FieldVisitor& visitor) {
    visitor.number_pair({"betas", ""}, betas, kProbability);
    visitor.number({"eps", ""}, eps, {.min = 0, .max = 1, .min_open = true});
  }
  bool operator==(const AdamW&) const = default;
};

[[maybe_unused]] const bool kAdded =
    add_alternative<Diag>(attentions()) && add_alternative<Norm>(attentions()) &&
    add_alternative<Softmax>(attentions()) && add_alternative<AdamW>(optimizers());

}  // namespace
}  // namespace transnormer
