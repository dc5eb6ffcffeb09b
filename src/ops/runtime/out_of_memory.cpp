#include "ops/runtime/out_of_memory.h"

#include <c10/util/Exception.h>

#include <new>
#include <stdexcept>
#include <string_view>

namespace transnormer::ops {

bool is_out_of_memory(const std::exception& error) {
  if (dynamic_cast<const std::bad_alloc*>(&error) != nullptr ||
      dynamic_cast<const std::length_error*>(&error) != nullptr ||
      dynamic_cast<const c10::OutOfMemoryError*>(&error) != nullptr) {
    return true;
  }
  // LibTorch has a type for the GPU's memory only.
  const auto* const own = dynamic_cast<const c10::Error*>(&error);
  return own != nullptr &&
         std::string_view(own->what_without_backtrace()).find("can't allocate memory") !=
             std::string_view::npos;
}

}  // namespace transnormer::ops
