#include "dist/group.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cstring>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <utility>

#include "dist/engine.h"
#include "util/error.h"

namespace transnormer::dist {
namespace {

using Clock = std::chrono::steady_clock;

at::Tensor bytes_of(const std::string& text) {
  at::Tensor bytes = at::empty({static_cast<std::int64_t>(text.size())}, at::kByte);
  std::memcpy(bytes.mutable_data_ptr(), text.data(), text.size());
  return bytes;
}

std::string text_of(const at::Tensor& bytes) {
  const at::Tensor whole = bytes.contiguous();
  return {static_cast<const char*>(whole.const_data_ptr()),
          static_cast<std::size_t>(whole.numel())};
}

}  // namespace

struct Pending::Work {
  c10::intrusive_ptr<c10d::Work> work;
  std::shared_ptr<Progress> progress;
};

Pending::Pending() = default;

Pending::Pending(std::unique_ptr<Work> work) : work_(std::move(work)) {}

Pending::Pending(Pending&&) noexcept = default;

Pending& Pending::operator=(Pending&& other) noexcept {
  std::swap(work_, other.work_);
  return *this;
}

Pending::~Pending() {
  try {
    wait();
  } catch (const CollectiveError&) {  // whoever drops it is on the way out already
  }
}

void Pending::wait() {
  if (!work_) {
    return;
  }
  const auto began = Clock::now();
  const auto work = std::exchange(work_, nullptr);
  try {
    work->work->wait();
  } catch (const std::exception& error) {
    throw CollectiveError(first_line(error.what()));
  }
  work->progress->waited_nanos += std::chrono::nanoseconds(Clock::now() - began).count();
}

Group::Group() = default;
Group::~Group() = default;

Group::Group(int rank, int size, std::shared_ptr<Engine> engine, std::shared_ptr<Progress> progress)
    : rank_(rank), size_(size), engine_(std::move(engine)), progress_(std::move(progress)) {}

template <typename Begin>
Pending Group::begin(const Begin& collective) const {
  ++progress_->begun;
  try {
    return Pending(
        std::make_unique<Pending::Work>(Pending::Work{collective(*engine_->backend), progress_}));
  } catch (const std::exception& error) {
    throw CollectiveError(first_line(error.what()));
  }
}

Pending Group::begin_sum(const at::Tensor& tensor) const {
  if (size_ == 1 || tensor.numel() == 0) {
    return {};
  }
  std::vector<at::Tensor> tensors{tensor};
  return begin([&](c10d::Backend& backend) { return backend.allreduce(tensors); });
}

void Group::sum(const at::Tensor& tensor) const {
  begin_sum(tensor).wait();
}

void Group::sum(std::span<double> numbers) const {
  sum(at::from_blob(numbers.data(), {std::ssize(numbers)}, at::kDouble));
}

at::Tensor Group::part_of(const at::Tensor& tensor) const {
  const std::int64_t elements = tensor.numel() / size_;
  return tensor.narrow(0, rank_ * elements, elements);
}

// Gloo has no sum of parts of its own, and what c10d does in its place takes longer than the whole.
Pending Group::begin_sum_of_parts(const at::Tensor& tensor) const {
  if (size_ == 1 || tensor.is_cpu()) {
    return begin_sum(tensor);
  }
  at::Tensor part = part_of(tensor);
  at::Tensor whole = tensor;
  return begin([&](c10d::Backend& backend) { return backend._reduce_scatter_base(part, whole); });
}

Pending Group::begin_gathering_parts(const at::Tensor& tensor) const {
  if (size_ == 1) {
    return {};
  }
  at::Tensor part = part_of(tensor);
  if (tensor.is_cpu()) {
    part = part.clone();  // Gloo copies it into the whole, which must not be itself
  }
  at::Tensor whole = tensor;
  return begin([&](c10d::Backend& backend) { return backend._allgather_base(whole, part); });
}

void Group::broadcast(const at::Tensor& tensor, int from) const {
  if (size_ == 1 || tensor.numel() == 0) {
    return;
  }
  std::vector<at::Tensor> tensors{tensor};
  c10d::BroadcastOptions options;
  options.rootRank = from;
  begin([&](c10d::Backend& backend) { return backend.broadcast(tensors, options); }).wait();
}

std::string Group::broadcast(const std::string& text, int from) const {
  at::Tensor size = at::scalar_tensor(static_cast<std::int64_t>(text.size()), at::kLong).view({1});
  broadcast(size, from);
  at::Tensor bytes =
      rank_ == from ? bytes_of(text) : at::empty({size.item<std::int64_t>()}, at::kByte);
  broadcast(bytes, from);
  return text_of(bytes);
}

at::Tensor Group::gather(const at::Tensor& tensor) const {
  if (size_ == 1) {
    return tensor.unsqueeze(0);
  }
  at::Tensor mine = tensor.contiguous().view({-1});
  at::Tensor all = at::empty({size_ * mine.numel()}, mine.options());
  if (mine.numel() > 0) {
    begin([&](c10d::Backend& backend) { return backend._allgather_base(all, mine); }).wait();
  }
  std::vector<std::int64_t> sizes{size_};
  sizes.insert(sizes.end(), tensor.sizes().begin(), tensor.sizes().end());
  return all.view(sizes);
}

std::vector<at::Tensor> Group::gather_rows(const at::Tensor& tensor) const {
  if (size_ == 1) {
    return {tensor};
  }
  const at::Tensor counts =
      gather(at::scalar_tensor(tensor.size(0), at::device(tensor.device()).dtype(at::kLong)))
          .to(at::kCPU);
  const auto* const count = counts.const_data_ptr<std::int64_t>();
  const std::int64_t most = *std::max_element(count, count + size_);
  std::vector<std::int64_t> sizes = tensor.sizes().vec();
  sizes[0] = most;
  at::Tensor padded = at::zeros(sizes, tensor.options());
  padded.narrow(0, 0, tensor.size(0)).copy_(tensor);
  const at::Tensor all = gather(padded);
  std::vector<at::Tensor> rows;
  for (int i = 0; i < size_; ++i) {
    rows.push_back(all[i].narrow(0, 0, count[i]));
  }
  return rows;
}

std::vector<std::string> Group::gather(const std::string& text) const {
  std::vector<std::string> texts;
  for (const at::Tensor& bytes : gather_rows(bytes_of(text))) {
    texts.push_back(text_of(bytes));
  }
  return texts;
}

void Group::meet() const {
  std::vector<double> nothing{0};
  sum(nothing);
}

double Group::waited_seconds() const {
  return progress_ ? static_cast<double>(progress_->waited_nanos) * 1e-9 : 0;
}

}  // namespace transnormer::dist
