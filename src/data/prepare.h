// From text files to token streams on disk.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "config/config.h"
#include "data/split_counts.h"
#include "data/token_stream.h"
#include "tokenizer/tokenizer.h"

namespace transnormer {

enum class Split { train, valid, test };
inline constexpr std::array kSplits{Split::train, Split::valid, Split::test};
[[nodiscard]] const char* to_string(Split split);

struct PreparedSplit {
  TokenStream stream;
  SplitCounts counts;
  double seconds = 0;  // spent on tokenising; 0 where a cache held it
};

struct PreparedData {
  std::shared_ptr<const Tokenizer> tokenizer;
  std::array<std::optional<PreparedSplit>, 3> splits;  // by Split; absent where not configured

  [[nodiscard]] const PreparedSplit& at(Split split) const;  // UserError where absent
  [[nodiscard]] const std::optional<PreparedSplit>& find(Split split) const {
    return splits[static_cast<std::size_t>(split)];
  }
};

struct PrepareOptions {
  std::vector<Split> wanted{Split::train, Split::valid, Split::test};
  bool progress = true;  // a bar or lines on stderr
  // What no cache holds is left out; nothing is written, nor told about the texts.
  bool only_cached = false;
};

// Loads or makes the tokenizer, then opens the caches of the wanted splits, building those that are
// missing, stale or damaged; warns of what is odd in their texts, cached or not. Throws UserError
// for faults of config, text or tokenizer files, and where a file under a cache's name is no cache.
[[nodiscard]] PreparedData prepare_data(const Config& config, const PrepareOptions& options = {});

// The same with a given tokenizer (a checkpoint's).
[[nodiscard]] PreparedData prepare_data(const Config& config,
                                        std::shared_ptr<const Tokenizer> tokenizer,
                                        const PrepareOptions& options = {});

// What is there of the training data already: the tokenizer, null where it is not made yet, and the
// train split where a cache holds it. Reads only; a fault of a text makes it not prepared.
[[nodiscard]] PreparedData find_prepared(const Config& config);

// The same with a given tokenizer (a checkpoint's).
[[nodiscard]] PreparedData find_prepared(const Config& config,
                                         std::shared_ptr<const Tokenizer> tokenizer);

// Tokenises one text without a cache (eval --text), as the config has texts read: a file, a pipe,
// or "-" for standard input. It is read once.
[[nodiscard]] PreparedSplit tokenize_file(const std::filesystem::path& path,
                                          const Tokenizer& tokenizer, const DataConfig& config);

// How often each token occurs in the stream: [tokenizer.size()].
[[nodiscard]] std::vector<std::int64_t> count_tokens(const TokenStream& stream,
                                                     std::int64_t vocab_size);

}  // namespace transnormer
