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
Pending Group::begin(const at::Tensor& tensor, const Begin& collective) const {
  if (size_ == 1 || tensor.numel() == 0) {
    return {};
  }
  ++progress_->begun;
  try {
    return Pending(std::make_unique<Pending::Work>(
        Pending::Work{collective(engine_->backend_for(tensor)), progress_}));
  } catch (const std::exception& error) {
    throw CollectiveError(first_line(error.what()));
  }
}

Pending Group::begin_sum(const at::Tensor& tensor) const {
  std::vector<at::Tensor> tensors{tensor};
  return begin(tensor, [&](c10d::Backend& backend) { return backend.allreduce(tensors); });
}

void Group::sum(const at::Tensor& tensor) const {
  begin_sum(tensor).wait();
}

void Group::sum(std::span<double> numbers) const {
  sum(at::from_blob(numbers.data(), {std::ssize(numbers)}, at::kDouble));
}

Pending Group::begin_sum_to(const at::Tensor& tensor, int to) const {
  std::vector<at::Tensor> tensors{tensor};
  c10d::ReduceOptions options;
  options.rootRank = to;
  return begin(tensor, [&](c10d::Backend& backend) { return backend.reduce(tensors, options); });
}

Group::Part Group::part_of(std::int64_t elements, int rank) const {
  constexpr std::int64_t kUnit = 16;
  const std::int64_t units = (elements + kUnit - 1) / kUnit;
  const std::int64_t length = (units + size_ - 1) / size_ * kUnit;
  return {std::min(rank * length, elements), std::min((rank + 1) * length, elements)};
}

void Group::share_parts(const at::Tensor& vector) const {
  std::vector<Pending> pending;
  for (int rank = 0; rank < size_; ++rank) {
    const Part part = part_of(vector.numel(), rank);
    pending.push_back(begin_broadcast(vector.slice(0, part.begin, part.end), rank));
  }
  for (Pending& each : pending) {
    each.wait();
  }
}

void Group::collect_parts(const at::Tensor& own, std::int64_t elements,
                          const at::Tensor& whole) const {
  if (rank_ != 0) {
    std::vector<at::Tensor> tensors{own};
    begin(own, [&](c10d::Backend& backend) { return backend.send(tensors, 0, rank_); }).wait();
    return;
  }
  for (int rank = 0; rank < size_; ++rank) {
    const Part part = part_of(elements, rank);
    at::Tensor target = whole.slice(0, part.begin, part.end);
    if (rank == 0) {
      target.copy_(own);
    } else if (!part.empty()) {
      // Directly to where it belongs, where that is memory that the engine can write to.
      std::vector<at::Tensor> tensors{own.is_cpu() ? target
                                                   : at::empty_like(target, own.options())};
      begin(own, [&](c10d::Backend& backend) { return backend.recv(tensors, rank, rank); }).wait();
      if (!own.is_cpu()) {
        target.copy_(tensors.front());
      }
    }
  }
}

Pending Group::begin_broadcast(const at::Tensor& tensor, int from) const {
  std::vector<at::Tensor> tensors{tensor};
  c10d::BroadcastOptions options;
  options.rootRank = from;
  return begin(tensor, [&](c10d::Backend& backend) { return backend.broadcast(tensors, options); });
}

void Group::broadcast(const at::Tensor& tensor, int from) const {
  begin_broadcast(tensor, from).wait();
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
  begin(mine, [&](c10d::Backend& backend) { return backend._allgather_base(all, mine); }).wait();
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
