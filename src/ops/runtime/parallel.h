// Shares loops out over LibTorch's threads.
#pragma once

#include <cstdint>
#include <functional>

namespace transnormer::ops {

// Calls body(first, last) for parts of [0, count) of at least `grain`, each on its own thread.
// What a body computes must not depend on where the parts are cut.
void parallel_for(std::int64_t count, std::int64_t grain,
                  const std::function<void(std::int64_t, std::int64_t)>& body);

}  // namespace transnormer::ops
