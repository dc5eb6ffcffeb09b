#include "dist/gloo.h"

#ifdef USE_C10D_GLOO
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#endif

#include <stdexcept>

namespace transnormer::dist {

#ifdef USE_C10D_GLOO

bool has_gloo() {
  return true;
}

std::shared_ptr<Engine> gloo_engine(const c10::intrusive_ptr<c10d::Store>& store, int rank,
                                    int size, const std::string& address,
                                    std::chrono::milliseconds timeout) {
  auto options = c10d::ProcessGroupGloo::Options::create(timeout);
  options->devices.push_back(c10d::ProcessGroupGloo::createDeviceForHostname(address));
  return std::make_shared<Engine>(
      Engine{c10::make_intrusive<c10d::ProcessGroupGloo>(store, rank, size, options)});
}

#else

bool has_gloo() {
  return false;
}

std::shared_ptr<Engine> gloo_engine(const c10::intrusive_ptr<c10d::Store>&, int, int,
                                    const std::string&, std::chrono::milliseconds) {
  throw std::logic_error("built without Gloo");
}

#endif

}  // namespace transnormer::dist
