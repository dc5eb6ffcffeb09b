// LibTorch's Gloo, where its headers were there when the program was built.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "dist/engine.h"

namespace transnormer::dist {

// Whether gloo_engine() can be called.
[[nodiscard]] bool has_gloo();

// The processes meet through the store, under keys of their own, and talk over the interface that
// has this address. Waits for all of them. Throws what c10d throws.
[[nodiscard]] std::shared_ptr<Engine> gloo_engine(const c10::intrusive_ptr<c10d::Store>& store,
                                                  int rank, int size, const std::string& address,
                                                  std::chrono::milliseconds timeout);

}  // namespace transnormer::dist
