#include "data/tokenize.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "data/parallel_text.h"
#include "data/text_reader.h"
#include "log/console.h"
#include "log/progress.h"
#include "util/error.h"
#include "util/processors.h"

namespace transnormer {
namespace {

struct ChunkTokens {
  std::vector<TokenId> ids;
  SplitCounts counts;  // without types
};

std::int64_t count_words(std::string_view text) {
  std::int64_t words = 0;
  bool before = true;  // a separator, or the start
  for (const char byte : text) {
    const bool separator = byte == ' ' || byte == '\n';
    words += static_cast<std::int64_t>(before && !separator);
    before = separator;
  }
  return words;
}

ChunkTokens tokenize_chunk(std::string_view text, const Tokenizer& tokenizer,
                           std::optional<TokenId> line_end) {
  ChunkTokens chunk;
  chunk.ids.reserve(text.size() / 4);
  chunk.counts.bytes = static_cast<std::int64_t>(text.size());
  chunk.counts.words = count_words(text);
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    tokenizer.encode_line(line, chunk.ids);
    if (line_end) {
      chunk.ids.push_back(*line_end);
    }
    ++chunk.counts.lines;
    text.remove_prefix(std::min(line.size() + 1, text.size()));
  }
  chunk.counts.tokens = static_cast<std::int64_t>(chunk.ids.size());
  chunk.counts.unknown = std::ranges::count(chunk.ids, tokenizer.unknown_id());
  return chunk;
}

std::optional<TokenId> line_end_token(const Tokenizer& tokenizer, LineEnd line_end) {
  if (line_end == LineEnd::none) {
    return std::nullopt;
  }
  if (!tokenizer.end_id()) {
    throw UserError(
        "data.line_end: \"eos\" needs an end token, and this sentencepiece model has none; "
        "set it to \"none\"");
  }
  return tokenizer.end_id();
}

std::string names(const std::vector<std::filesystem::path>& files) {
  return files.front().string() +
         (files.size() > 1 ? " and " + std::to_string(files.size() - 1) + " more" : "");
}

}  // namespace

std::int64_t bytes_of(const std::vector<std::filesystem::path>& files) {
  std::int64_t bytes = 0;
  for (const std::filesystem::path& file : files) {
    std::error_code error;
    const auto size = std::filesystem::file_size(file, error);
    bytes += error ? 0 : static_cast<std::int64_t>(size);
  }
  return bytes;
}

int text_threads(const TrainConfig& config) {
  return useful_threads(config.threads);
}

SplitCounts tokenize(const TextPass& pass, const Tokenizer& tokenizer, LineEnd line_end,
                     const std::function<void(std::span<const TokenId>)>& sink) {
  const std::optional<TokenId> end = line_end_token(tokenizer, line_end);
  TextReader reader(pass.files);
  log::ProgressBar bar(pass.label, bytes_of(pass.files), 0, pass.progress);
  SplitCounts counts;
  std::vector<std::uint8_t> seen(static_cast<std::size_t>(tokenizer.size()), 0);
  for_each_chunk(
      reader, pass.threads,
      [&](int, std::string_view text) { return tokenize_chunk(text, tokenizer, end); },
      [&](ChunkTokens chunk) {
        for (const TokenId id : chunk.ids) {
          seen[static_cast<std::size_t>(id)] = 1;
        }
        counts.tokens += chunk.counts.tokens;
        counts.unknown += chunk.counts.unknown;
        counts.lines += chunk.counts.lines;
        counts.bytes += chunk.counts.bytes;
        counts.words += chunk.counts.words;
        sink(chunk.ids);
        bar.update(counts.bytes);
      });
  bar.finish();
  if (reader.saw_carriage_return()) {
    log::warn(names(pass.files) +
              ": holds carriage returns; lines end at line feeds only, so they stay in the text");
  }
  counts.types = std::ranges::count(seen, 1);
  if (counts.words == 0) {
    throw UserError(names(pass.files) + ": is empty: it holds no word");
  }
  return counts;
}

}  // namespace transnormer
