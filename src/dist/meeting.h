// How processes come together at a store: each says what it is, and the first one judges whether
// they fit.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "dist/group.h"
#include "dist/launch.h"
#include "dist/watch.h"
#include "dist/world.h"

namespace transnormer::dist {

using Store = c10::intrusive_ptr<c10d::Store>;

inline constexpr std::chrono::milliseconds kLook{50};  // between two looks at the store

void set(const Store& store, const std::string& key, const std::string& value);
// Waits for a key, without a timeout without limit. Throws UserError with `absent`, StoppedError
// when a signal asks to stop, unless that is to be ignored, and what c10d throws.
[[nodiscard]] std::string await(const Store& store, const std::string& key,
                                const std::string& absent,
                                std::optional<std::chrono::milliseconds> timeout,
                                Stops stops = Stops::heeded);

// The launcher's store, or that of rank 0, which makes it. Throws UserError.
[[nodiscard]] Store open_store(const Launch& launch, std::chrono::milliseconds timeout);

// What each process says of itself.
struct Arrival {
  Watch::Member member;
  int size = 1;
  std::string identity;  // of the program
};

struct Meeting {
  Store store;
  std::string address;  // of this machine, towards the others
  std::shared_ptr<const Progress> progress;
  std::chrono::milliseconds timeout;
};

// Until all have come, and watch each other. Throws UserError: who is late, which numbers do not
// fit together, who is of another program; and FirstHasFault.
[[nodiscard]] std::unique_ptr<Watch> meet(const Meeting& meeting, const Arrival& self);

}  // namespace transnormer::dist
