// What a user should know of a text before trusting figures made from it.
#pragma once

#include <cstdint>
#include <string>

#include "data/split_counts.h"
#include "data/text_reader.h"

namespace transnormer {

// Logs a warning for carriage returns and for bytes that are no UTF-8. `name` is what the text goes
// by: a key of the config, or a file.
void warn_of_findings(const std::string& name, const TextSource& source,
                      const TextFindings& findings);

// The same, and a warning where many tokens are unknown.
void warn_of_text(const std::string& name, const TextSource& source, const SplitCounts& counts);

}  // namespace transnormer
