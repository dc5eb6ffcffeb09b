#include "data/prepare.h"

#include <chrono>
#include <set>
#include <system_error>
#include <utility>

#include "config/splits.h"
#include "data/cache_file.h"
#include "data/cache_lock.h"
#include "data/file_digests.h"
#include "data/make_tokenizer.h"
#include "data/text_files.h"
#include "data/text_warnings.h"
#include "data/tokenize.h"
#include "log/console.h"
#include "util/error.h"
#include "util/units.h"

namespace transnormer {
namespace {

namespace fs = std::filesystem;

const std::vector<std::string>& entries_of(const DataConfig& config, Split split) {
  switch (split) {
    case Split::train:
      return config.train;
    case Split::valid:
      return config.valid;
    case Split::test:
      break;
  }
  return config.test;
}

std::string key_of(Split split) {
  return std::string("data.") + to_string(split);
}

// Where a split's text stands: a part of data.train's may serve as valid.
struct SplitText {
  const std::vector<std::string>& entries;
  std::string key;   // that holds the entries
  std::string name;  // of the text, in warnings
  Holdout part;
};

SplitText text_of(const DataConfig& config, Split split) {
  const double share = held_out_share(config);
  if (split == Split::valid && share > 0) {
    return {config.train, "data.train", "valid, held out of data.train", {share, true}};
  }
  return {entries_of(config, split),
          key_of(split),
          key_of(split),
          {.share = split == Split::train ? share : 0}};
}

double seconds_since(std::chrono::steady_clock::time_point began) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
}

// One split's text, tokenizer and place in the cache.
struct Job {
  Split split;
  SplitText text;
  TextPass pass;
  std::vector<FileIdentity> identities;  // of the files, before they were digested
  const Tokenizer& tokenizer;
  CacheKey key;
  fs::path cache;
};

void build_cache(const Job& job) {
  CacheWriter writer(job.cache, job.key, job.tokenizer.size());
  const SplitCounts counts =
      tokenize(job.pass, job.tokenizer, job.key.line_end,
               [&](std::span<const TokenId> tokens) { writer.append(tokens); });
  check_unchanged(job.pass.source.files, job.identities, job.text.key);
  writer.finish(counts);
}

void warn_of_short_text(const std::string& name, std::int64_t tokens,
                        std::int64_t tokens_per_sample) {
  if (tokens < tokens_per_sample) {
    log::warn(name + ": has " + format_count(tokens) +
              " tokens in all, fewer than one sample (data.tokens_per_sample is " +
              format_count(tokens_per_sample) + "), so it is one shorter sample");
  }
}

// A text beside its compressed copy: a glob names both.
void warn_of_twins(const std::string& name, const std::vector<fs::path>& files) {
  const std::set<fs::path> all(files.begin(), files.end());
  for (const fs::path& file : files) {
    for (const char* ending : {".gz", ".xz", ".zst"}) {
      if (const fs::path twin = file.string() + ending; all.contains(twin)) {
        log::warn(name + ": both " + file.string() + " and " + twin.string() +
                  " are read; where one is the other compressed, leave one out");
        return;
      }
    }
  }
}

// Only what started as a cache of ours may be damaged and is built again.
void refuse_foreign(const fs::path& path) {
  if (InputFile(path).size() > 0 && !is_cache_file(path)) {
    throw UserError(path.string() +
                    ": stands where a text cache belongs and is none, so it is not replaced; "
                    "remove it, or set another data.cache_dir");
  }
}

std::optional<PreparedSplit> open_whole(const Job& job, FileDigests& digests, bool warn) {
  std::error_code unknown;
  if (!fs::exists(job.cache, unknown)) {
    return std::nullopt;
  }
  try {
    OpenedCache cache = open_cache(job.cache, job.key, digests);
    return PreparedSplit{std::move(cache.stream), cache.info.counts};
  } catch (const UserError& error) {
    refuse_foreign(job.cache);
    if (warn) {
      log::warn(std::string(error.what()) + "; it is built again");
    }
    return std::nullopt;
  }
}

PreparedSplit open_or_build(const Job& job, FileDigests& digests) {
  if (std::optional<PreparedSplit> split = open_whole(job, digests, false)) {
    return *std::move(split);
  }
  const FileLock lock = lock_cache(job.cache.parent_path());
  if (std::optional<PreparedSplit> split = open_whole(job, digests, true)) {
    return *std::move(split);  // built by the process we waited for
  }
  const auto began = std::chrono::steady_clock::now();
  build_cache(job);
  const double seconds = seconds_since(began);
  OpenedCache cache = open_cache(job.cache, job.key, digests);
  const SplitCounts& counts = cache.info.counts;
  log::info(std::string(to_string(job.split)) + ": " + format_count(counts.tokens) +
            " tokens from " + format_bytes(static_cast<double>(counts.bytes)) + " in " +
            format_duration(seconds));
  return {std::move(cache.stream), counts, seconds};
}

PreparedData prepare_splits(const Config& config, std::shared_ptr<const Tokenizer> tokenizer,
                            const PrepareOptions& options, FileDigests& digests) {
  PreparedData data{std::move(tokenizer), {}};
  for (const Split split : options.wanted) {
    const SplitText text = text_of(config.data, split);
    if (text.entries.empty()) {
      continue;
    }
    Job job{.split = split,
            .text = text,
            .pass = {.source = {find_text_files(text.entries, text.key), config.data.strip_cr,
                                text.part},
                     .label = std::string("tokenising ") + to_string(split),
                     .threads = text_threads(config.train),
                     .progress = options.progress},
            .identities = {},
            .tokenizer = *data.tokenizer,
            .key = {data.tokenizer->digest(), "", config.data.line_end, config.data.strip_cr,
                    text.part},
            .cache = {}};
    job.identities = identify(job.pass.source.files);
    job.key.source_digest = digests.digest(job.pass.source.files);
    job.cache = fs::path(config.data.cache_dir) / job.key.file_name(to_string(split));
    std::optional<PreparedSplit>& place = data.splits[static_cast<std::size_t>(split)];
    if (options.only_cached) {
      place = open_whole(job, digests, false);
      continue;
    }
    const PreparedSplit& prepared = place.emplace(open_or_build(job, digests));
    warn_of_twins(text.name, job.pass.source.files);
    warn_of_text(text.name, job.pass.source, prepared.counts);
    warn_of_short_text(text.name, prepared.counts.tokens, config.data.tokens_per_sample);
  }
  if (!options.only_cached) {
    digests.save();
  }
  return data;
}

}  // namespace

const char* to_string(Split split) {
  switch (split) {
    case Split::train:
      return "train";
    case Split::valid:
      return "valid";
    case Split::test:
      break;
  }
  return "test";
}

const PreparedSplit& PreparedData::at(Split split) const {
  const std::optional<PreparedSplit>& found = find(split);
  if (!found) {
    throw UserError(key_of(split) + ": is not set; name the text of this split");
  }
  return *found;
}

PreparedData prepare_data(const Config& config, const PrepareOptions& options) {
  FileDigests digests(config.data.cache_dir);
  return prepare_splits(config, obtain_tokenizer(config, digests, options.progress), options,
                        digests);
}

PreparedData prepare_data(const Config& config, std::shared_ptr<const Tokenizer> tokenizer,
                          const PrepareOptions& options) {
  FileDigests digests(config.data.cache_dir);
  return prepare_splits(config, std::move(tokenizer), options, digests);
}

namespace {

PreparedData find_splits(const Config& config, std::shared_ptr<const Tokenizer> tokenizer,
                         FileDigests& digests) {
  PreparedData data{std::move(tokenizer), {}};
  if (data.tokenizer == nullptr) {
    return data;
  }
  try {
    return prepare_splits(config, data.tokenizer,
                          {.wanted = {Split::train}, .progress = false, .only_cached = true},
                          digests);
  } catch (const UserError&) {
    return data;  // whoever prepares the text is told
  }
}

}  // namespace

PreparedData find_prepared(const Config& config) {
  FileDigests digests(config.data.cache_dir);
  return find_splits(config, find_tokenizer(config, digests), digests);
}

PreparedData find_prepared(const Config& config, std::shared_ptr<const Tokenizer> tokenizer) {
  FileDigests digests(config.data.cache_dir);
  return find_splits(config, std::move(tokenizer), digests);
}

PreparedSplit tokenize_file(const fs::path& path, const Tokenizer& tokenizer,
                            const DataConfig& config) {
  std::error_code error;  // what cannot be looked up cannot be read, which says why
  if (fs::is_directory(path, error)) {
    throw UserError(path.string() + ": is a directory; expected a text file");
  }
  const std::string name = text_name(path);
  std::vector<TokenId> tokens;
  const TextPass pass{.source = {{path}, config.strip_cr},
                      .label = "tokenising " + fs::path(name).filename().string(),
                      .threads = text_threads({}),
                      .progress = true};
  const auto began = std::chrono::steady_clock::now();
  const SplitCounts counts =
      tokenize(pass, tokenizer, config.line_end, [&](std::span<const TokenId> chunk) {
        tokens.insert(tokens.end(), chunk.begin(), chunk.end());
      });
  warn_of_text(name, pass.source, counts);
  return {TokenStream(std::move(tokens)), counts, seconds_since(began)};
}

std::vector<std::int64_t> count_tokens(const TokenStream& stream, std::int64_t vocab_size) {
  std::vector<std::int64_t> counts(static_cast<std::size_t>(vocab_size), 0);
  stream.for_each([&counts](TokenId token) { ++counts.at(static_cast<std::size_t>(token)); });
  return counts;
}

}  // namespace transnormer
