// A copy of what a checkpoint holds of a training, to be written while the training goes on.
#pragma once

#include <vector>

#include "checkpoint/training_state.h"
#include "model/weights.h"

namespace transnormer {

struct Snapshot {
  std::vector<NamedTensor> model;
  std::vector<NamedTensor> optimizer;
  std::vector<NamedTensor> average;  // of the weights, where there is one
  TrainingState state;
};

// Tensors on the CPU under the same names, to be filled. They hold zeros, so that their memory is
// there: the first copy into memory that the system has yet to find takes several times as long.
// Throws what LibTorch throws where there is none.
[[nodiscard]] std::vector<NamedTensor> make_room(const std::vector<NamedTensor>& tensors);

// Makes `copies` hold on the CPU what `tensors` hold on any device, under the same names. Those
// that are alike already are written over, others made anew. Throws what LibTorch throws where
// there is no memory.
void copy_tensors(const std::vector<NamedTensor>& tensors, std::vector<NamedTensor>& copies);

}  // namespace transnormer
