#include "ops/kernel_view.h"

#include <cstdlib>
#include <string_view>

namespace transnormer::ops {

bool plain_operators() {
  static const bool plain = [] {
    const char* wanted = std::getenv("TRANSNORMER_OPERATORS");
    return wanted != nullptr && std::string_view(wanted) == "plain";
  }();
  return plain;
}

}  // namespace transnormer::ops
