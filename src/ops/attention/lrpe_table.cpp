#include "ops/attention/lrpe_table.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>

#include "ops/runtime/launch.h"

namespace transnormer::ops {
namespace {

constexpr std::int64_t kFine = 64;   // positions between two coarse rotations
constexpr std::int64_t kRows = 256;  // whose share of d(theta) is summed by itself

struct Rotations {
  std::vector<double> cosine;
  std::vector<double> sine;
};

// The rotations of `count` positions `step` apart from `first` on, by each of the angles.
Rotations rotations(const double* theta, std::int64_t angles, std::int64_t first, std::int64_t step,
                    std::int64_t count) {
  Rotations made;
  for (std::int64_t i = 0; i < count; ++i) {
    for (std::int64_t j = 0; j < angles; ++j) {
      const double angle = static_cast<double>(first + i * step) * theta[j];
      made.cosine.push_back(std::cos(angle));
      made.sine.push_back(std::sin(angle));
    }
  }
  return made;
}

// From the least position to the greatest.
PositionRange range_of(const std::int64_t* numbers, std::int64_t count) {
  if (count == 0) {
    return {0, 0};
  }
  const auto [least, most] = std::minmax_element(numbers, numbers + count);
  return {*least, *most - *least + 1};
}

kernels::LrpeRows rows_of(const at::Tensor& x, const LrpeTable& table) {
  return {.first = 0,
          .last = 0,
          .time = x.size(1),
          .heads = x.size(2),
          .dim = x.size(3),
          .lrpe = table.view()};
}

std::int64_t grain_of(const at::Tensor& x) {
  return std::max<std::int64_t>(kGrain / std::max<std::int64_t>(x.size(2) * x.size(3), 1), 1);
}

}  // namespace

at::Tensor position_numbers(const Positions& positions, std::int64_t time,
                            const at::Device& device) {
  const at::Tensor number = positions.each.defined()
                                ? positions.each.to(device, at::kLong)
                                : at::arange(positions.first, positions.first + time,
                                             at::device(device).dtype(at::kLong));
  return positions.period > 0 ? number.remainder(positions.period) : number;
}

LrpeTable::LrpeTable(const at::Tensor& theta, const at::Tensor& reflect, std::int64_t time,
                     const Positions& positions)
    : unit_(reflect.contiguous()) {
  if (time == 1 && fill_one(theta, positions)) {
    one_ = true;
    return;
  }
  const at::Tensor wide = theta.detach().to(at::kDouble).contiguous();
  const std::int64_t period = positions.period;
  const bool whole_period = !positions.each.defined() && period > 0 && time >= period;
  first_ = whole_period ? positions.first % period : 0;
  const at::Tensor number = whole_period
                                ? position_numbers({}, period, theta.device())
                                : position_numbers(positions, time, theta.device()).contiguous();
  if (!theta.is_cpu()) {
    device_position_ = number.to(at::kDouble);
    const at::Tensor angle = device_position_.unsqueeze(1) * wide;
    device_rotation_ = at::stack({angle.cos(), angle.sin()}, -1).to(at::kFloat);
    return;
  }
  const auto* numbers = number.const_data_ptr<std::int64_t>();
  fill(wide.const_data_ptr<double>(), wide.numel(), numbers, number.numel(),
       period > 0 ? PositionRange{0, period} : range_of(numbers, number.numel()));
}

bool LrpeTable::fill_one(const at::Tensor& theta, const Positions& positions) {
  if (!theta.is_cpu() || theta.scalar_type() != at::kFloat || !theta.is_contiguous() ||
      positions.each.defined() || positions.first < 0 ||
      2 * theta.numel() > static_cast<std::int64_t>(one_rotation_.size())) {
    return false;
  }
  one_position_ = static_cast<double>(positions.period > 0 ? positions.first % positions.period
                                                           : positions.first);
  const auto* angles = theta.const_data_ptr<float>();
  const auto count = static_cast<std::size_t>(theta.numel());
  for (std::size_t i = 0; i < count; ++i) {
    const double angle = one_position_ * static_cast<double>(angles[i]);
    one_rotation_[2 * i] = static_cast<float>(std::cos(angle));
    one_rotation_[2 * i + 1] = static_cast<float>(std::sin(angle));
  }
  return true;
}

void LrpeTable::fill(const double* angles, std::int64_t count, const std::int64_t* numbers,
                     std::int64_t rows, const PositionRange& range) {
  position_.assign(numbers, numbers + rows);
  rotation_.resize(static_cast<std::size_t>(rows * 2 * count));
  const auto set = [this](std::size_t place, double c, double s) {
    rotation_[place] = static_cast<float>(c);
    rotation_[place + 1] = static_cast<float>(s);
  };
  const std::int64_t coarse_rows = (range.count + kFine - 1) / kFine;
  if (rows <= kFine || coarse_rows > rows) {
    // No more angles than the fine rotations are, or than the coarse ones.
    std::size_t place = 0;
    for (const double here : position_) {
      for (std::int64_t i = 0; i < count; ++i, place += 2) {
        set(place, std::cos(here * angles[i]), std::sin(here * angles[i]));
      }
    }
    return;
  }

  // Each position is first + coarse * kFine + fine.
  const Rotations fine = rotations(angles, count, 0, 1, std::min(kFine, range.count));
  const Rotations coarse = rotations(angles, count, range.first, kFine, coarse_rows);
  parallel_for(rows, std::max<std::int64_t>(kGrain / std::max<std::int64_t>(count, 1), 1),
               [&](std::int64_t begin, std::int64_t end) {
                 for (std::int64_t row = begin; row < end; ++row) {
                   const std::int64_t offset = numbers[row] - range.first;
                   const auto a = static_cast<std::size_t>(offset / kFine * count);
                   const auto b = static_cast<std::size_t>(offset % kFine * count);
                   const auto to = static_cast<std::size_t>(row * 2 * count);
                   for (std::size_t i = 0; i < static_cast<std::size_t>(count); ++i) {
                     const double c = coarse.cosine[a + i] * fine.cosine[b + i] -
                                      coarse.sine[a + i] * fine.sine[b + i];
                     const double s = coarse.sine[a + i] * fine.cosine[b + i] +
                                      coarse.cosine[a + i] * fine.sine[b + i];
                     set(to + 2 * i, c, s);
                   }
                 }
               });
}

kernels::Lrpe LrpeTable::view() const {
  if (empty()) {
    return {};
  }
  if (one_) {
    return {.rotation = one_rotation_.data(),
            .position = &one_position_,
            .unit = unit_.const_data_ptr<float>(),
            .first = 0,
            .rows = 1};
  }
  if (device_rotation_.defined()) {
    return {.rotation = device_rotation_.const_data_ptr<float>(),
            .position = device_position_.const_data_ptr<double>(),
            .unit = unit_.const_data_ptr<float>(),
            .first = first_,
            .rows = device_position_.size(0)};
  }
  return {.rotation = rotation_.data(),
          .position = position_.data(),
          .unit = unit_.const_data_ptr<float>(),
          .first = first_,
          .rows = static_cast<std::int64_t>(position_.size())};
}

bool lrpe_kernel_fits(const at::Tensor& x) {
  return kernel_serves(x, &kernels::Kernels::lrpe) && x.size(3) <= kernels::kWidestLrpe;
}

bool lrpe_backward_kernel_fits(const at::Tensor& x) {
  return kernel_serves(x, &kernels::Kernels::lrpe_backward) && x.size(3) <= kernels::kWidestLrpe;
}

at::Tensor lrpe_kernel(const at::Tensor& x, const LrpeTable& table) {
  const at::Tensor dense = x.contiguous();
  const at::Tensor y = empty_dense(x);
  const kernels::LrpeRows all = rows_of(x, table);
  launch(x, x.size(0) * all.time, grain_of(x),
         [&](const kernels::Kernels& set, std::int64_t first, std::int64_t last) {
           kernels::LrpeRows part = all;
           part.first = first;
           part.last = last;
           set.lrpe(part, in(dense), out(y));
         });
  return y;
}

// The shares of d(theta) are cut by rows, not by threads, so that their sum does not depend on the
// number of threads.
LrpeGradients lrpe_kernel_backward(const at::Tensor& gradient, const at::Tensor& x,
                                   const LrpeTable& table) {
  const at::Tensor dense = x.contiguous();
  const at::Tensor g = dense_like(gradient, x);
  const at::Tensor d_x = empty_dense(x);
  const kernels::LrpeRows all = rows_of(x, table);
  const std::int64_t rows = x.size(0) * all.time;
  const std::int64_t most = x.is_cpu() ? kRows : std::max<std::int64_t>(rows, 1);
  const std::int64_t shares = (rows + most - 1) / most;
  const at::Tensor d_theta = at::zeros({shares, all.dim / 2}, x.options().dtype(at::kDouble));
  auto* sums = d_theta.mutable_data_ptr<double>();
  launch(x, shares, 1, [&](const kernels::Kernels& set, std::int64_t begin, std::int64_t end) {
    for (std::int64_t share = begin; share < end; ++share) {
      kernels::LrpeRows part = all;
      part.first = share * most;
      part.last = std::min(part.first + most, rows);
      set.lrpe_backward(part, in(dense), in(g), out(d_x), sums + share * (all.dim / 2));
    }
  });
  return {d_x, d_theta.sum(0)};
}

}  // namespace transnormer::ops
