// A running mean of the weights (optimizer.ema), which often generalises better than they do.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "model/weights.h"
#include "optim/flat_parameters.h"

namespace transnormer {

// e += (1 - d) (w - e) after each update that is applied, with decay d in (0, 1), of every trained
// parameter; fp32, on its device. Each process of a world has the whole of it, the same bits.
class WeightAverage {
 public:
  // Starts as the weights are. These must outlive it.
  WeightAverage(const FlatParameters& weights, double decay);

  // Starts anew, as the weights are now.
  void restart();
  // After an update.
  void update();

  // `model`: named_tensors() of the model. The same names in the same order, the mean of what is
  // trained and the model's own of what is frozen.
  [[nodiscard]] std::vector<NamedTensor> named(const std::vector<NamedTensor>& model) const;

  // While it lives, the model's weights are the mean; afterwards they are, bit for bit, what they
  // were. Nothing may update or save either meanwhile.
  class InPlace {
   public:
    explicit InPlace(WeightAverage& average);
    ~InPlace();
    InPlace(const InPlace&) = delete;
    InPlace& operator=(const InPlace&) = delete;

   private:
    WeightAverage& average_;
  };

 private:
  // Weights and mean change places.
  void exchange();

  const FlatParameters& weights_;
  double decay_;
  std::vector<at::Tensor> mean_;     // laid out as the buffers are
  std::vector<at::Tensor> scratch_;  // for each: what changes places
};

}  // namespace transnormer
