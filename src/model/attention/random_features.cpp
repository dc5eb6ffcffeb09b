#include "model/attention/random_features.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <vector>

namespace transnormer {
namespace {

// Rows of one block become orthogonal to those before and of length 1, twice, since the first time
// leaves rounding behind. By plain loops in double: the same bits at any number of threads.
void orthonormalize(std::vector<double>& rows, std::int64_t count, std::int64_t dim) {
  for (std::int64_t i = 0; i < count; ++i) {
    double* const row = rows.data() + i * dim;
    for (int round = 0; round < 2; ++round) {
      for (std::int64_t j = 0; j < i; ++j) {
        const double* const other = rows.data() + j * dim;
        double along = 0;
        for (std::int64_t d = 0; d < dim; ++d) {
          along += row[d] * other[d];
        }
        for (std::int64_t d = 0; d < dim; ++d) {
          row[d] -= along * other[d];
        }
      }
      double square = 0;
      for (std::int64_t d = 0; d < dim; ++d) {
        square += row[d] * row[d];
      }
      for (std::int64_t d = 0; d < dim; ++d) {
        row[d] /= std::sqrt(square);
      }
    }
  }
}

// directions [rows, dim]: made orthogonal by blocks, with the lengths of those of `lengths`.
void make_orthogonal(float* directions, const float* lengths, std::int64_t rows, std::int64_t dim) {
  for (std::int64_t first = 0; first < rows; first += dim) {
    const std::int64_t count = std::min(dim, rows - first);
    std::vector<double> block(directions + first * dim, directions + (first + count) * dim);
    orthonormalize(block, count, dim);
    for (std::int64_t i = 0; i < count; ++i) {
      double square = 0;
      for (std::int64_t d = 0; d < dim; ++d) {
        const double x = lengths[(first + i) * dim + d];
        square += x * x;
      }
      for (std::int64_t d = 0; d < dim; ++d) {
        directions[(first + i) * dim + d] =
            static_cast<float>(std::sqrt(square) * block[static_cast<std::size_t>(i * dim + d)]);
      }
    }
  }
}

}  // namespace

RandomFeatures::RandomFeatures(torch::nn::Module& owner, at::IntArrayRef sizes,
                               Directions directions, bool redraw,
                               const AttentionSettings& settings)
    : directions_(directions),
      redraw_(redraw),
      random_key_(settings.random_key),
      fixed_(owner.register_buffer(kName, at::empty(sizes, at::device(settings.device)))) {}

at::Tensor RandomFeatures::get(const ForwardContext& context) {
  if (!redraw_ || !context.training) {
    return fixed_;
  }
  if (!drawn_.defined() || seed_ != context.seed || update_ != context.update) {
    drawn_ = at::empty_like(fixed_);
    draw(Initializer(context.seed),
         "redraw." + std::to_string(context.update) + "." + std::to_string(random_key_), drawn_);
    seed_ = context.seed;
    update_ = context.update;
  }
  return drawn_;
}

void RandomFeatures::initialize(const Initializer& initializer, const std::string& prefix) {
  draw(initializer, prefix + kName, fixed_);
}

void RandomFeatures::draw(const Initializer& source, const std::string& name,
                          const at::Tensor& to) const {
  const at::NoGradGuard no_gradients;
  if (directions_ == Directions::independent) {
    source.normal(to, name, 1);
    return;
  }
  const at::Tensor directions = at::empty(to.sizes(), at::kFloat);
  const at::Tensor lengths = at::empty(to.sizes(), at::kFloat);
  source.normal(directions, name, 1);
  source.normal(lengths, name + ".lengths", 1);
  const std::int64_t rows = to.size(1);
  const std::int64_t dim = to.size(2);
  for (std::int64_t set = 0; set < to.size(0); ++set) {
    make_orthogonal(directions.data_ptr<float>() + set * rows * dim,
                    lengths.data_ptr<float>() + set * rows * dim, rows, dim);
  }
  to.copy_(directions);
}

}  // namespace transnormer
