#include "tokenizer/sentencepiece_log.h"

// Exported by the library, but in none of the headers that it installs.
namespace sentencepiece::logging {
void SetMinLogLevel(int level);
}

namespace transnormer {

void silence_sentencepiece() {
  constexpr int kFatalOnly = 3;
  sentencepiece::logging::SetMinLogLevel(kFatalOnly);
}

}  // namespace transnormer
