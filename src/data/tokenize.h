// The pass over a text that makes its tokens and counts them.
#pragma once

#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "config/config.h"
#include "data/split_counts.h"
#include "data/text_reader.h"
#include "tokenizer/tokenizer.h"

namespace transnormer {

struct TextPass {
  TextSource source;
  std::string label;  // before the progress bar
  int threads = 1;
  bool progress = true;  // a bar or lines on stderr
};

// Bytes of the files as they are stored, for progress; those that are not regular files count
// nothing.
[[nodiscard]] std::int64_t bytes_of(const std::vector<std::filesystem::path>& files);

// As many as the config asks, else one a processor, and never more than that.
[[nodiscard]] int text_threads(const TrainConfig& config);

// Tokenises by all threads and hands the tokens to `sink` in the order of the text. Memory does not
// grow with the text. Logs nothing: what is odd stands in the counts. With LineEnd::keep each file
// is one text for the tokenizer, line ends and all; else each line is. Throws UserError where the
// text is empty or no text, or where the tokenizer cannot code line ends as asked.
SplitCounts tokenize(const TextPass& pass, const Tokenizer& tokenizer, LineEnd line_end,
                     const std::function<void(std::span<const TokenId>)>& sink);

// Throws UserError: the text, or the part of it that is wanted, holds no word.
[[noreturn]] void fail_empty(const TextSource& source);

}  // namespace transnormer
