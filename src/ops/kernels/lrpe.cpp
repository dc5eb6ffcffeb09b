#include "ops/kernels/functions.h"
#include "ops/kernels/rows.h"

namespace transnormer::ops::kernels::TRANSNORMER_ISA {
namespace {

constexpr std::int64_t kTimes = 64;  // whose rows stay in a near cache for all heads

// Calls body(span, place of its first element) for each head of the rows, few times at once.
template <typename Body>
void for_spans(const LrpeRows& rows, Body body) {
  for (std::int64_t row = rows.first; row < rows.last;) {
    const std::int64_t time = row % rows.time;
    std::int64_t count = kTimes;
    count = rows.last - row < count ? rows.last - row : count;
    count = rows.time - time < count ? rows.time - time : count;
    for (std::int64_t head = 0; head < rows.heads; ++head) {
      body(Span{time, count, rows.dim}, (row * rows.heads + head) * rows.dim);
    }
    row += count;
  }
}

}  // namespace

void lrpe(const LrpeRows& rows, In x, Out y) {
  const std::int64_t stride = rows.heads * rows.dim;
  by_type(x.type, [&](auto* t) {
    for_spans(rows, [&](const Span& s, std::int64_t place) {
      encode(Feature::none, rows.lrpe, s, Rows{as(x, t) + place, stride}, 1,
             Rows{as(y, t) + place, stride});
    });
  });
}

void lrpe_backward(const LrpeRows& rows, In x, In d_y, Out d_x, double* d_theta) {
  const std::int64_t stride = rows.heads * rows.dim;
  by_type(x.type, [&](auto* t) {
    for_spans(rows, [&](const Span& s, std::int64_t place) {
      encode_backward(Feature::none, rows.lrpe, s, Rows{as(x, t) + place, stride},
                      Rows{as(d_y, t) + place, stride}, 1, Rows{as(d_x, t) + place, stride},
                      d_theta);
    });
  });
}

}  // namespace transnormer::ops::kernels::TRANSNORMER_ISA
