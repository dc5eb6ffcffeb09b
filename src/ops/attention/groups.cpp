#include "ops/attention/groups.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <bit>
#include <map>
#include <unordered_map>

#include "ops/runtime/carry.h"

namespace transnormer::ops {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// Rows [from[i]] of x at [to[i]] of a tensor of `count` rows, zero elsewhere.
at::Tensor moved(const at::Tensor& x, const at::Tensor& from, const at::Tensor& to,
                 std::int64_t count) {
  std::vector<std::int64_t> sizes = x.sizes().vec();
  sizes[0] = count;
  return at::zeros(sizes, x.options()).index_copy_(0, to, x.index_select(0, from));
}

// No row is named twice, so that the way back is the same with the roles changed.
struct MoveRows : torch::autograd::Function<MoveRows> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& from,
                            const at::Tensor& to, std::int64_t count) {
    context->save_for_backward({from, to});
    carry(context, x.size(0));
    return moved(x, from, to, count);
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const variable_list saved = context->get_saved_variables();
    return {moved(gradients[0], saved[1], saved[0], carried<std::int64_t>(context)), {}, {}, {}};
  }
};

at::Tensor integers(const std::vector<std::int64_t>& values, const at::Device& device) {
  return at::tensor(values, at::kLong).to(device);
}

// Where a token stands: in which row, and behind how many others.
struct Seat {
  std::int64_t token;
  std::int64_t number;  // among the real tokens of its batch row
  std::size_t row;
  std::int64_t rank;
};

struct Row {
  std::int64_t sample;
  std::int64_t length;
};

struct Seating {
  std::vector<Seat> seats;
  std::vector<Row> rows;
};

Seating seat(const Visibility& visibility, std::int64_t batch, std::int64_t time,
             std::int64_t block) {
  for (const at::Tensor& x : {visibility.padding, visibility.segments}) {
    TORCH_CHECK(!x.defined() || x.sizes() == at::IntArrayRef({batch, time}),
                "visibility: expected padding and segments of sizes ", batch, " and ", time,
                ", got ", x.sizes());
  }
  const auto on_host = [](const at::Tensor& x, at::ScalarType type) {
    return x.defined() ? x.to(at::kCPU, type).contiguous() : x;
  };
  const at::Tensor padding = on_host(visibility.padding, at::kBool);
  const at::Tensor segments = on_host(visibility.segments, at::kLong);
  const bool* hidden = padding.defined() ? padding.const_data_ptr<bool>() : nullptr;
  const auto* segment = segments.defined() ? segments.const_data_ptr<std::int64_t>() : nullptr;
  Seating made;
  for (std::int64_t sample = 0; sample < batch; ++sample) {
    std::unordered_map<std::int64_t, std::size_t> open;  // each segment's row that is being filled
    std::int64_t number = 0;
    for (std::int64_t token = sample * time; token < (sample + 1) * time; ++token) {
      if (hidden != nullptr && hidden[token]) {
        continue;
      }
      const auto [own, fresh] =
          open.try_emplace(segment == nullptr ? 0 : segment[token], made.rows.size());
      if (!fresh && block > 0 && made.rows[own->second].length == block) {
        own->second = made.rows.size();
      }
      if (own->second == made.rows.size()) {
        made.rows.push_back({sample, 0});
      }
      made.seats.push_back({token, number++, own->second, made.rows[own->second].length++});
    }
  }
  return made;
}

}  // namespace

Groups::Groups(const Visibility& visibility, std::int64_t batch, std::int64_t time,
               std::int64_t block, const at::Device& device)
    : batch_(batch), time_(time) {
  const Seating seating = seat(visibility, batch, time, block);

  // Rows whose lengths need the same number of bits share a width.
  std::map<int, std::vector<std::size_t>> by_bits;
  for (std::size_t row = 0; row < seating.rows.size(); ++row) {
    const auto length = static_cast<std::uint64_t>(seating.rows[row].length);
    by_bits[std::bit_width(length)].push_back(row);
  }
  std::vector<std::int64_t> start(seating.rows.size());  // a row's first place
  for (const auto& [bits, members] : by_bits) {
    std::vector<std::int64_t> lengths;
    std::vector<std::int64_t> samples;
    for (const std::size_t row : members) {
      lengths.push_back(seating.rows[row].length);
      samples.push_back(seating.rows[row].sample);
    }
    const std::int64_t width = *std::max_element(lengths.begin(), lengths.end());
    const auto count = static_cast<std::int64_t>(members.size());
    for (std::size_t i = 0; i < members.size(); ++i) {
      start[members[i]] = places_ + static_cast<std::int64_t>(i) * width;
    }
    all_.push_back({.first = places_,
                    .rows = count,
                    .length = width,
                    .lengths = integers(lengths, device),
                    .sample = integers(samples, device),
                    .number = {}});
    places_ += count * width;
  }

  std::vector<std::int64_t> token;
  std::vector<std::int64_t> place;
  std::vector<std::int64_t> number(static_cast<std::size_t>(places_));
  for (const Seat& each : seating.seats) {
    token.push_back(each.token);
    place.push_back(start[each.row] + each.rank);
    number[static_cast<std::size_t>(place.back())] = each.number;
  }
  token_ = integers(token, device);
  place_ = integers(place, device);
  const at::Tensor numbers = integers(number, device);
  for (RowsOfTokens& rows : all_) {
    rows.number =
        numbers.narrow(0, rows.first, rows.rows * rows.length).view({rows.rows, rows.length});
  }
}

at::Tensor Groups::gather(const at::Tensor& x) const {
  return MoveRows::apply(x.flatten(0, 1), token_, place_, places_).unsqueeze(0);
}

at::Tensor Groups::part(const at::Tensor& gathered, const RowsOfTokens& rows) {
  return gathered.select(0, 0)
      .narrow(0, rows.first, rows.rows * rows.length)
      .view({rows.rows, rows.length, gathered.size(2), gathered.size(3)});
}

at::Tensor Groups::scatter(const std::vector<at::Tensor>& parts) const {
  std::vector<at::Tensor> flat;
  for (const at::Tensor& part : parts) {
    flat.push_back(part.flatten(0, 1));
  }
  return MoveRows::apply(at::cat(flat, 0), place_, token_, batch_ * time_)
      .unflatten(0, {batch_, time_});
}

Encoding Groups::gather(const Encoding& encoding) const {
  Encoding gathered = encoding;
  if (encoding.theta.defined()) {
    const at::Tensor position = encoding.positions.defined()
                                    ? encoding.positions.reshape({-1}).index_select(0, token_)
                                    : token_.remainder(time_) + encoding.first_position;
    gathered.period = 0;  // rows begin anywhere in one
    gathered.positions = at::zeros({places_}, token_.options())
                             .index_copy_(0, place_, position.to(at::kLong))
                             .unsqueeze(0);
  }
  return gathered;
}

at::Tensor by_groups(const Groups& groups, const at::Tensor& q, const at::Tensor& k,
                     const at::Tensor& v, const Encoding& encoding, const AttendRows& attend) {
  const at::Tensor value = groups.gather(v);
  if (groups.all().empty()) {
    return groups.scatter({value});
  }
  const Encoding own = groups.gather(encoding);
  const at::Tensor query = encode(groups.gather(q), own);
  const at::Tensor key = encode(groups.gather(k), own);
  std::vector<at::Tensor> parts;
  for (const RowsOfTokens& rows : groups.all()) {
    parts.push_back(attend(Groups::part(query, rows), Groups::part(key, rows),
                           Groups::part(value, rows), rows));
  }
  return groups.scatter(parts);
}

at::Tensor by_rows(const Visibility& visibility, const std::vector<at::Tensor>& tensors,
                   const OfRows& body, const Encoding& encoding, const OfTokens& prepare) {
  const auto prepared = [&](const std::vector<at::Tensor>& plain, const Encoding& places) {
    return prepare ? prepare(plain, places) : plain;
  };
  if (visibility.whole_rows()) {
    return body(prepared(tensors, encoding), {});
  }
  const at::Tensor& like = tensors.front();
  const Groups groups(visibility, like.size(0), like.size(1), 0, like.device());
  std::vector<at::Tensor> gathered;
  for (const at::Tensor& tensor : tensors) {
    gathered.push_back(groups.gather(tensor));
  }
  if (groups.all().empty()) {
    return groups.scatter({gathered.back()});
  }
  gathered = prepared(gathered, groups.gather(encoding));
  std::vector<at::Tensor> results;
  for (const RowsOfTokens& rows : groups.all()) {
    std::vector<at::Tensor> parts;
    for (const at::Tensor& tensor : gathered) {
      parts.push_back(Groups::part(tensor, rows));
    }
    results.push_back(body(parts, rows.lengths));
  }
  return groups.scatter(results);
}

at::Tensor is_token(const at::Tensor& lengths, std::int64_t length) {
  return lengths.defined()
             ? at::arange(length, lengths.options()).unsqueeze(0) < lengths.unsqueeze(1)
             : at::Tensor();
}

}  // namespace transnormer::ops
