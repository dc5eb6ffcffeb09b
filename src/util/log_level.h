// How much a message matters, in the config and to the log alike.
#pragma once

namespace transnormer {

enum class LogLevel { debug, info, warning, error };

}  // namespace transnormer
