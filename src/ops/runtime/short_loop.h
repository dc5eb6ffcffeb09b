// Shares out loops that take microseconds, as decoding's do: waking LibTorch's threads would cost
// more than they bring.
#pragma once

#include <cstdint>
#include <functional>

namespace transnormer::ops {

// Calls body(first, last) for parts of [0, count) that begin at multiples of `grain`. Threads other
// than this one, as many as LibTorch may have, look for work for some microseconds after the last
// loop and then sleep. This one works on whatever part is left, so that a thread whose core is
// taken by others is waited for no longer than its one part takes. What a body computes must not
// depend on where the parts are cut. Throws the first that a body throws, when all parts are done.
void short_parallel_for(std::int64_t count, std::int64_t grain,
                        const std::function<void(std::int64_t, std::int64_t)>& body);

}  // namespace transnormer::ops
