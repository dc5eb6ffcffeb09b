// Makes sentencepiece models.
#pragma once

#include <functional>
#include <string>

#include "config/config.h"

namespace transnormer {

// Puts the next line into the string; false at the end of the text.
using NextLine = std::function<bool(std::string&)>;

// A model in which every text comes back as it was, byte for byte: no normalisation, spaces kept
// and none added, unknown characters as bytes (with `byte_fallback`). Specials as in the word
// vocabulary: <s> 0, <pad> 1, </s> 2, <unk> 3. The same text and settings make the same bytes, on
// any number of cores.
//
// The library ends the process on some texts, and takes endless time on some lines. So it runs in a
// ChildProcess, which holds all the lines in memory, and lines longer than kLongestTrainingLine
// bytes are given to it in parts, with a warning. Throws UserError where the text does not yield
// `vocab_size` pieces, naming the most or the least that it does, and where the library fails;
// StoppedError when a signal asks to stop.
inline constexpr std::size_t kLongestTrainingLine = 16384;
[[nodiscard]] std::string train_sentencepiece(const NextLine& next_line,
                                              const TokenizerConfig& config);

// What that process does: the program's main() calls run_sentencepiece_worker() where the arguments
// say so. Nothing for people.
[[nodiscard]] bool is_sentencepiece_worker(int argc, char** argv);
int run_sentencepiece_worker(char** argv);

}  // namespace transnormer
