#include "train/gradient_reduction.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <unordered_map>
#include <utility>

#include "model/block.h"
#include "optim/gradients.h"

namespace transnormer {
namespace {

constexpr int kToAll = -1;
constexpr std::int64_t kGap = 64;  // elements between parameters, at most, that are sent with them

}  // namespace

GradientReduction::GradientReduction(const dist::World& world, const TransNormer& model,
                                     const Optimizer& optimizer, const DistributedConfig& config)
    : group_(world.all()),
      optimizer_(optimizer),
      bucket_elements_(std::max<std::int64_t>(
          static_cast<std::int64_t>(config.bucket_mb * 1e6 / sizeof(float)), 1)),
      sent_as_(config.gradient_precision == GradientPrecision::bf16 ? at::kBFloat16 : at::kFloat),
      embedding_(model.embedding_weight()),
      is_tied_(model.output_weight().value().is_same(model.embedding_weight().value())) {
  if (is_needed()) {
    plan(model);
  }
}

void GradientReduction::plan(const TransNormer& model) {
  std::unordered_map<const at::TensorImpl*, std::vector<Interval>*> owners;
  const auto own = [&owners](const at::Tensor& tensor, std::vector<Interval>& place) {
    owners[tensor.unsafeGetTensorImpl()] = &place;
  };
  const auto& blocks = model.blocks();
  behind_.resize(blocks.size() + 1);
  for (const at::Tensor& parameter : model.parameters()) {
    own(parameter, rest_);
  }
  for (const auto& item : model.named_parameters()) {
    if (item.key().starts_with("final_norm.")) {
      own(item.value(), behind_.back());
    }
  }
  for (std::size_t i = blocks.size(); i-- > 0;) {  // what several have is whole behind the lowest
    for (const at::Tensor& parameter : blocks[i]->parameters()) {
      own(parameter, behind_[i]);
    }
  }
  own(model.output_weight().value(), output_);
  own(model.embedding_weight().value(), table_);
  const FlatParameters& flat = optimizer_.flat();
  for (std::size_t i = 0; i < flat.parameters().size(); ++i) {
    const auto [buffer, range] = flat.place_of(i);
    const FlatRange& place = flat.buffers()[buffer].ranges[range];
    owners.at(flat.parameters()[i].tensor.unsafeGetTensorImpl())
        ->push_back({buffer, place.offset, place.offset + place.count});
  }
}

void GradientReduction::begin(bool fills) {
  fills_ = fills;
  table_is_sent_ = false;
  was_reached_.assign(behind_.size(), false);
  rows_ = {};
  waiting_.clear();
  sums_.clear();
}

ops::RowGradients* GradientReduction::embedding_rows() {
  return is_needed() && embedding_.gathers_gradient() ? &rows_ : nullptr;
}

void GradientReduction::on_loss(bool output_gradient_is_made) {
  if (!is_needed() || !output_gradient_is_made || !embedding_.gathers_gradient()) {
    return;
  }
  send(output_);
  // Zeros need not be sent.
  if (is_tied_ || fills_) {
    send(table_);
  }
  table_is_sent_ = true;
}

void GradientReduction::on_gradients_behind(std::int64_t layer) {
  if (!is_needed()) {
    return;
  }
  was_reached_[static_cast<std::size_t>(layer)] = true;
  const std::vector<Interval>& whole = behind_[static_cast<std::size_t>(layer)];
  waiting_.insert(waiting_.end(), whole.begin(), whole.end());
  std::int64_t elements = 0;
  for (const Interval& interval : waiting_) {
    elements += interval.size();
  }
  if (elements >= bucket_elements_) {
    send(std::exchange(waiting_, {}));
  }
}

void GradientReduction::finish() {
  if (!is_needed()) {
    return;
  }
  waiting_.insert(waiting_.end(), rest_.begin(), rest_.end());
  for (std::size_t layer = 0; layer < behind_.size(); ++layer) {
    if (!was_reached_[layer]) {  // where a layer lets no gradient through
      waiting_.insert(waiting_.end(), behind_[layer].begin(), behind_[layer].end());
    }
  }
  if (!table_is_sent_) {
    ops::add_rows(embedding_.gradient(), std::exchange(rows_, {}));
    waiting_.insert(waiting_.end(), table_.begin(), table_.end());
    waiting_.insert(waiting_.end(), output_.begin(), output_.end());
  }
  send(std::exchange(waiting_, {}));
  for (Sum& sum : sums_) {
    sum.pending.wait();
    if (sum.target.defined()) {
      sum.target.copy_(sum.sent);
    }
  }
  sums_.clear();
  if (table_is_sent_ && embedding_rows() != nullptr) {
    add_rows_of_all();
  }
}

// In the order of ranks, so that all have the same bits.
void GradientReduction::add_rows_of_all() {
  const at::Tensor gradient = embedding_.gradient();
  if (!rows_.tokens.defined()) {
    rows_ = {at::empty({0}, gradient.options().dtype(at::kLong)),
             at::empty({0, gradient.size(1)}, gradient.options())};
  }
  const std::vector<at::Tensor> tokens = group_.gather_rows(rows_.tokens);
  const std::vector<at::Tensor> rows = group_.gather_rows(rows_.rows.to(sent_as_));
  for (std::size_t rank = 0; rank < tokens.size(); ++rank) {
    ops::add_rows(gradient, {tokens[rank], rows[rank].to(at::kFloat)});
  }
  rows_ = {};
}

// What lies side by side goes together.
void GradientReduction::send(const std::vector<Interval>& intervals) {
  std::vector<Interval> sorted = intervals;
  std::ranges::sort(sorted, {}, [](const Interval& x) { return std::pair(x.buffer, x.begin); });
  std::vector<Interval> joined;
  for (const Interval& interval : sorted) {
    if (!joined.empty() && joined.back().buffer == interval.buffer &&
        interval.begin - joined.back().end <= kGap) {
      joined.back().end = interval.end;
    } else {
      joined.push_back(interval);
    }
  }
  for (const Interval& interval : joined) {
    send(interval);
  }
}

void GradientReduction::send(const Interval& interval) {
  const at::Tensor& gradients = optimizer_.flat().buffers()[interval.buffer].gradients;
  if (optimizer_.shared_by().size() == 1) {
    send(gradients.slice(0, interval.begin, interval.end), kToAll);
    return;
  }
  for (int rank = 0; rank < group_.size(); ++rank) {
    const dist::Group::Part part = optimizer_.shared_by().part_of(gradients.numel(), rank);
    const dist::Group::Part sent = part.common_with({interval.begin, interval.end});
    if (!sent.empty()) {
      send(gradients.slice(0, sent.begin, sent.end), rank);
    }
  }
}

void GradientReduction::send(const at::Tensor& gradient, int to) {
  for (const at::Tensor& piece : gradient.split(bucket_elements_)) {
    Sum sum{.pending = {}, .sent = piece, .target = {}};
    if (sent_as_ != piece.scalar_type()) {
      sum.sent = piece.to(sent_as_);
      sum.target = piece;
    }
    sum.pending = to == kToAll ? group_.begin_sum(sum.sent) : group_.begin_sum_to(sum.sent, to);
    sums_.push_back(std::move(sum));
  }
}

at::Tensor GradientReduction::norms(std::vector<double>& figures) const {
  const FlatParameters& flat = optimizer_.flat();
  std::vector<at::Tensor> parts;
  std::vector<std::size_t> numbers;
  for (std::size_t i = 0; i < flat.parameters().size(); ++i) {
    const auto [buffer, range] = flat.place_of(i);
    const FlatBuffer& all = flat.buffers()[buffer];
    const FlatRange& place = all.ranges[range];
    const dist::Group::Part own = group_.own_part_of(all.gradients.numel())
                                      .common_with({place.offset, place.offset + place.count});
    if (!own.empty()) {
      parts.push_back(all.gradients.slice(0, own.begin, own.end));
      numbers.push_back(i);
    }
  }
  const std::size_t before = figures.size();
  figures.resize(before + flat.parameters().size(), 0);
  if (!parts.empty()) {
    const at::Tensor norms = gradient_norms(parts).to(at::kCPU).contiguous();
    for (std::size_t i = 0; i < numbers.size(); ++i) {
      const double norm = norms.const_data_ptr<double>()[i];
      figures[before + numbers[i]] = norm * norm;
    }
  }
  group_.sum(figures);
  at::Tensor norms = at::empty({static_cast<std::int64_t>(flat.parameters().size())}, at::kDouble);
  std::copy(figures.begin() + static_cast<std::ptrdiff_t>(before), figures.end(),
            norms.mutable_data_ptr<double>());
  figures.resize(before);
  return norms.sqrt();
}

void GradientReduction::make_whole() const {
  if (optimizer_.shared_by().size() == 1) {
    return;
  }
  for (const FlatBuffer& buffer : optimizer_.flat().buffers()) {
    optimizer_.shared_by().share_parts(buffer.gradients);
  }
}

}  // namespace transnormer
