#pragma once

namespace transnormer {

// The library tells its progress and its errors on stderr; both come to us as values, so keep it
// quiet.
void silence_sentencepiece();

}  // namespace transnormer
