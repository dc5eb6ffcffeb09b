// Random directions of an attention: one fixed set, saved with the model, for evaluation and
// generation; in training a fresh one for each update.
#pragma once

#include <torch/nn/module.h>

#include <cstdint>
#include <string>

#include "model/attention/attention.h"
#include "model/context.h"
#include "model/initializer.h"

namespace transnormer {

enum class Directions {
  independent,  // all numbers N(0, 1)
  orthogonal    // rows of a set are orthogonal in blocks of `dim`, each with the length of a row of
                // N(0, 1), so that each by itself is such a row
};

// Both kinds of sets follow one distribution. A fresh one is a function of (seed, update, layer):
// the same for all samples, passes and ranks and where a layer is recomputed. It is made on the
// host, so that a pass which draws can't be captured.
class RandomFeatures {
 public:
  static constexpr const char* kName = "features";

  // Registers the fixed set as the owner's buffer kName, [sets, rows, dim] in fp32.
  RandomFeatures(torch::nn::Module& owner, at::IntArrayRef sizes, Directions directions,
                 bool redraw, const AttentionSettings& settings);

  // The set of this pass.
  [[nodiscard]] at::Tensor get(const ForwardContext& context);
  [[nodiscard]] bool can_be_captured() const { return !redraw_; }
  // The owner's part of Initializable.
  void initialize(const Initializer& initializer, const std::string& prefix);

 private:
  void draw(const Initializer& source, const std::string& name, const at::Tensor& to) const;

  Directions directions_;
  bool redraw_;
  std::int64_t random_key_;
  at::Tensor fixed_;
  // The fresh set, and for what it was drawn.
  at::Tensor drawn_;
  std::uint64_t seed_ = 0;
  std::int64_t update_ = -1;
};

}  // namespace transnormer
