#include "ops/runtime/out_of_memory.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <array>
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
  // LibTorch has a type for what its own allocator of a GPU's memory refuses only.
  const auto* const own = dynamic_cast<const c10::Error*>(&error);
  if (own == nullptr) {
    return false;
  }
  const std::string_view what = own->what_without_backtrace();
  constexpr std::array kTexts{"can't allocate memory", "CUDA error: out of memory",
                              "CUBLAS_STATUS_ALLOC_FAILED"};
  return std::any_of(kTexts.begin(), kTexts.end(), [what](const char* text) {
    return what.find(text) != std::string_view::npos;
  });
}

}  // namespace transnormer::ops
