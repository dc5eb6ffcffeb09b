// Commands whose code has not landed yet.
#include "cli/commands.h"

namespace transnormer::cli {
}  // namespace transnormer::cli
