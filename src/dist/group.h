// A group of processes and what they do together. A group of one does nothing, so that nobody asks
// how many there are. The engine is LibTorch's c10d: Gloo for tensors of a CPU, NCCL for a GPU's.
//
// On a GPU a collective runs on a stream of NCCL's own, behind what the calling thread's current
// stream was given before; waiting for it makes the current stream wait, not the host. So the hooks
// of a backward pass may begin one on autograd's thread, whose current stream is that of the pass.
#pragma once

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

namespace transnormer::dist {

struct Engine;  // dist/engine.h

// What a process has begun and waited for, in all of its groups; read by another thread.
struct Progress {
  std::atomic<std::int64_t> begun{0};  // collectives
  // In which the process could not go on. What a GPU's stream waits for is not in it.
  std::atomic<std::int64_t> waited_nanos{0};
};

// A collective failed: another process has ended, hangs, or does something else.
class CollectiveError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// A collective under way; its tensors must live until it is waited for, and nobody else touches
// them. Waits when dropped.
class Pending {
 public:
  struct Work;

  Pending();
  explicit Pending(std::unique_ptr<Work> work);
  ~Pending();
  Pending(Pending&&) noexcept;
  Pending& operator=(Pending&&) noexcept;

  // Until the result is there; for a GPU, until its stream has it. Throws CollectiveError.
  void wait();

 private:
  std::unique_ptr<Work> work_;
};

// All of a group call the same functions in the same order, with tensors of the same sizes and
// types, contiguous ones on a GPU. Everything throws CollectiveError where the group fails.
class Group {
 public:
  Group();  // of one
  ~Group();
  Group(int rank, int size, std::shared_ptr<Engine> engine, std::shared_ptr<Progress> progress);

  [[nodiscard]] int rank() const { return rank_; }
  [[nodiscard]] int size() const { return size_; }

  // In place, the sum over all; the same bits on each.
  void sum(const at::Tensor& tensor) const;
  [[nodiscard]] Pending begin_sum(const at::Tensor& tensor) const;
  void sum(std::span<double> numbers) const;

  // The sum over all, in place, on process `to` only; what the others have then is left open.
  [[nodiscard]] Pending begin_sum_to(const at::Tensor& tensor, int to) const;

  // A vector cut into size() parts at multiples of 16, of which each process has one; the last ones
  // may be shorter, or empty.
  struct Part {
    std::int64_t begin = 0;
    std::int64_t end = 0;
    [[nodiscard]] bool empty() const { return begin >= end; }
    [[nodiscard]] Part common_with(const Part& other) const {
      return {std::max(begin, other.begin), std::min(end, other.end)};
    }
  };
  [[nodiscard]] Part part_of(std::int64_t elements, int rank) const;
  [[nodiscard]] Part own_part_of(std::int64_t elements) const { return part_of(elements, rank_); }
  // vector: [elements]. Gives everyone's part of it to all.
  void share_parts(const at::Tensor& vector) const;
  // own: this process's part of a vector of so many elements. Process 0 gets all of them, in
  // `whole` there: [elements], on the CPU.
  void collect_parts(const at::Tensor& own, std::int64_t elements, const at::Tensor& whole) const;

  // In place, what process `from` has.
  void broadcast(const at::Tensor& tensor, int from) const;
  [[nodiscard]] Pending begin_broadcast(const at::Tensor& tensor, int from) const;
  [[nodiscard]] std::string broadcast(const std::string& text, int from) const;

  // [size(), ..]: the tensor of each, in the order of ranks. The same sizes everywhere.
  [[nodiscard]] at::Tensor gather(const at::Tensor& tensor) const;
  // The same where the numbers of rows, [rows, ..], differ. The host waits for these numbers.
  [[nodiscard]] std::vector<at::Tensor> gather_rows(const at::Tensor& tensor) const;
  [[nodiscard]] std::vector<std::string> gather(const std::string& text) const;

  // Until all are here.
  void meet() const;

  [[nodiscard]] double waited_seconds() const;

 private:
  // Begins a collective of the engine that such a tensor needs; none of one process, or of a tensor
  // without elements.
  template <typename Begin>
  [[nodiscard]] Pending begin(const at::Tensor& tensor, const Begin& collective) const;

  int rank_ = 0;
  int size_ = 1;
  std::shared_ptr<Engine> engine_;  // null: a group of one
  std::shared_ptr<Progress> progress_;
};

}  // namespace transnormer::dist
