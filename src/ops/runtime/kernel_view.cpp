#include "ops/runtime/kernel_view.h"

#include <cstdlib>
#include <string>

#include "util/error.h"

namespace transnormer::ops {

bool plain_operators() {
  static const bool plain = [] {
    const char* value = std::getenv("TRANSNORMER_OPERATORS");
    const std::string wanted = value == nullptr ? "" : value;
    if (!wanted.empty() && wanted != "plain") {
      throw UserError("TRANSNORMER_OPERATORS: expected \"plain\" or nothing, got \"" + wanted +
                      "\"");
    }
    return wanted == "plain";
  }();
  return plain;
}

}  // namespace transnormer::ops
