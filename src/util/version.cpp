#include "util/version.h"

namespace transnormer {

const char* program_version() {
  return TRANSNORMER_VERSION;
}

}  // namespace transnormer
