// Tokens gathered so that those which may see one another stand side by side, in rows with nothing
// but filling behind their last token. An attention is then made of whole rows, whatever the
// padding and the segments were.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <vector>

#include "ops/attention/encoding.h"
#include "ops/attention/visibility.h"

namespace transnormer::ops {

// Rows of about the same length.
struct RowsOfTokens {
  std::int64_t first = 0;  // the place of the first
  std::int64_t rows = 0;
  std::int64_t length = 0;  // places a row
  at::Tensor lengths;       // int64 [rows], tokens a row, 1 to `length`
  at::Tensor sample;        // int64 [rows], the batch row that it comes from
  at::Tensor number;        // int64 [rows, length], of the batch row's real tokens which it is
};

// The real tokens of a batch by segments and, where `block` > 0, by blocks of that many tokens of
// each segment. At most twice as many places as tokens. Reads padding and segments on the host, so
// that it has no place in a CUDA graph.
class Groups {
 public:
  Groups(const Visibility& visibility, std::int64_t batch, std::int64_t time, std::int64_t block,
         const at::Device& device);

  [[nodiscard]] const std::vector<RowsOfTokens>& all() const { return all_; }

  // [batch, time, heads, dim] -> [1, places, heads, dim], zero where no token stands.
  [[nodiscard]] at::Tensor gather(const at::Tensor& x) const;
  // Places [first, first + rows * length) of such a tensor: [rows, length, heads, dim].
  [[nodiscard]] static at::Tensor part(const at::Tensor& gathered, const RowsOfTokens& rows);
  // Back from parts of all rows, in their order, to [batch, time, heads, dim]; zero at padding.
  [[nodiscard]] at::Tensor scatter(const std::vector<at::Tensor>& parts) const;

  // The same encoding for gathered tokens, which keep their positions. It has no period: where
  // blocks do not begin at its multiples, it would tear a block's positions apart.
  [[nodiscard]] Encoding gather(const Encoding& encoding) const;

 private:
  std::int64_t batch_;
  std::int64_t time_;
  std::int64_t places_ = 0;
  std::vector<RowsOfTokens> all_;
  at::Tensor token_;  // int64 [tokens], of batch * time
  at::Tensor place_;  // int64 [tokens], where it stands
};

// Of operands [rows, length, heads, dim] that are encoded already.
using AttendRows = std::function<at::Tensor(const at::Tensor& q, const at::Tensor& k,
                                            const at::Tensor& v, const RowsOfTokens& rows)>;

// An attention of q, k, v ([batch, time, heads, dim]) from that of whole rows. Where no token is
// real: zeros.
[[nodiscard]] at::Tensor by_groups(const Groups& groups, const at::Tensor& q, const at::Tensor& k,
                                   const at::Tensor& v, const Encoding& encoding,
                                   const AttendRows& attend);

// Any function of the tokens of whole rows, [rows, length, heads, dim] each, to a tensor of the
// same first two sizes; `lengths` (int64 [rows], 1 to `length`): the tokens of each row, undefined
// where all are full. What stands behind a row's last token is zero, and what is given there is
// dropped.
using OfRows =
    std::function<at::Tensor(const std::vector<at::Tensor>& tensors, const at::Tensor& lengths)>;

// What is done to each token before, by itself: of tensors [.., .., heads, dim], which are at
// `encoding`'s positions. Not done to what stands at padding.
using OfTokens = std::function<std::vector<at::Tensor>(const std::vector<at::Tensor>& tensors,
                                                       const Encoding& encoding)>;

// That of tensors [batch, time, heads, dim] (heads and dim may differ), whose rows are the segments
// of the batch's rows without their padding; zeros at padding.
[[nodiscard]] at::Tensor by_rows(const Visibility& visibility,
                                 const std::vector<at::Tensor>& tensors, const OfRows& body,
                                 const Encoding& encoding = {}, const OfTokens& prepare = {});

// bool [rows, length], true where a row has a token; undefined where `lengths` is.
[[nodiscard]] at::Tensor is_token(const at::Tensor& lengths, std::int64_t length);

}  // namespace transnormer::ops
