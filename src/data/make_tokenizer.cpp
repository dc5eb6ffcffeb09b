#include "data/make_tokenizer.h"

#include <algorithm>
#include <optional>
#include <string_view>
#include <system_error>
#include <vector>

#include "config/names.h"
#include "config/splits.h"
#include "data/cache_lock.h"
#include "data/parallel_text.h"
#include "data/text_files.h"
#include "data/text_reader.h"
#include "data/text_warnings.h"
#include "data/tokenize.h"
#include "log/console.h"
#include "log/progress.h"
#include "tokenizer/sentencepiece_trainer.h"
#include "tokenizer/word_dictionary.h"
#include "util/error.h"
#include "util/file.h"
#include "util/hash.h"
#include "util/philox.h"

namespace transnormer {
namespace {

namespace fs = std::filesystem;

TextSource training_text(const Config& config) {
  if (config.data.train.empty()) {
    throw UserError(
        "tokenizer.path: is empty, so the tokenizer is made from data.train, which is empty too; "
        "set one of them");
  }
  return {find_text_files(config.data.train, "data.train"),
          config.data.strip_cr,
          {.share = held_out_share(config.data)}};
}

// The lines of a text, one at a time.
class LineReader {
 public:
  explicit LineReader(TextSource source) : reader_(std::move(source)) {}

  // Empty lines are passed over: they teach a tokenizer nothing.
  bool next(std::string& line) {
    do {
      if (at_ == chunk_.text.size()) {
        if (!reader_.next(chunk_)) {
          return false;
        }
        at_ = 0;
      }
      const std::size_t end = std::min(chunk_.text.find('\n', at_), chunk_.text.size());
      line.assign(chunk_.text, at_, end - at_);
      at_ = std::min(end + 1, chunk_.text.size());
    } while (line.empty());
    return true;
  }

  [[nodiscard]] std::int64_t source_bytes() const { return reader_.source_bytes(); }
  [[nodiscard]] const TextFindings& findings() const { return reader_.findings(); }

 private:
  TextReader reader_;
  TextChunk chunk_;
  std::size_t at_ = 0;
};

// `count` lines, each equally likely (reservoir sampling), the same ones for the same text.
std::vector<std::string> sample_lines(const TextPass& pass, std::int64_t count,
                                      TextFindings& findings) {
  constexpr std::uint64_t kDomain = 0x6C696E6573;  // "lines"
  LineReader reader(pass.source);
  log::ProgressBar bar(pass.label, bytes_of(pass.source.files), 0, pass.progress);
  std::vector<std::string> sample;
  std::string line;
  for (std::uint64_t number = 0; reader.next(line); ++number) {
    if (number < static_cast<std::uint64_t>(count)) {
      sample.push_back(line);
    } else {
      const PhiloxWords words = philox4x32(
          philox_key(kDomain),
          {static_cast<std::uint32_t>(number), static_cast<std::uint32_t>(number >> 32), 0, 0});
      const std::uint64_t place = philox_below(words, number + 1);
      if (place < static_cast<std::uint64_t>(count)) {
        sample[place] = line;
      }
    }
    bar.update(reader.source_bytes());
  }
  bar.finish();
  findings = reader.findings();
  return sample;
}

WordCounts count_words(const TextPass& pass, TextFindings& findings) {
  TextReader reader(pass.source);
  log::ProgressBar bar(pass.label, bytes_of(pass.source.files), 0, pass.progress);
  std::vector<WordCounts> counts(static_cast<std::size_t>(pass.threads));
  for_each_chunk(
      reader, pass.threads,
      [&](int thread, const TextChunk& chunk) {
        counts[static_cast<std::size_t>(thread)].add_text(chunk.text);
        return 0;
      },
      [&](int) { bar.update(reader.source_bytes()); });
  bar.finish();
  findings = reader.findings();
  for (std::size_t thread = 1; thread < counts.size(); ++thread) {
    counts.front().merge(counts[thread]);
  }
  return std::move(counts.front());
}

std::string make_word_dictionary(const TextPass& pass, const TokenizerConfig& config,
                                 TextFindings& findings) {
  WordCounts counts;
  if (config.sample_lines > 0) {
    for (const std::string& line : sample_lines(pass, config.sample_lines, findings)) {
      counts.add_text(line);
    }
  } else {
    counts = count_words(pass, findings);
  }
  if (counts.words().size() == 0) {
    fail_empty(pass.source);
  }
  return make_dictionary(counts, config);
}

std::string make_sentencepiece_model(const TextPass& pass, const TokenizerConfig& config,
                                     TextFindings& findings) {
  log::info("training a sentencepiece model; this can take minutes");
  if (config.sample_lines > 0) {
    std::vector<std::string> lines = sample_lines(pass, config.sample_lines, findings);
    std::size_t at = 0;
    return train_sentencepiece(
        [&](std::string& line) {
          return at < lines.size() && (line = std::move(lines[at++]), true);
        },
        config);
  }
  LineReader reader(pass.source);
  std::string model =
      train_sentencepiece([&](std::string& line) { return reader.next(line); }, config);
  findings = reader.findings();
  return model;
}

bool is_word(const Config& config) {
  return config.tokenizer.type == TokenizerType::word;
}

// All that the made tokenizer is a function of.
std::string recipe_digest(const TextSource& text, const Config& config, FileDigests& digests) {
  const TokenizerConfig& t = config.tokenizer;
  std::string recipe = "2\n" + digests.digest(text.files);
  const auto add = [&recipe](std::int64_t value) { recipe += '\n' + std::to_string(value); };
  add(static_cast<int>(t.type));
  add(static_cast<int>(text.strip_cr));
  add(t.vocab_size);
  add(t.sample_lines);
  if (is_word(config)) {
    add(t.min_count);
    add(t.pad_to_multiple);
  } else {
    add(static_cast<int>(t.model_type));
    add(static_cast<int>(t.byte_fallback));
  }
  if (text.part.splits()) {
    recipe += '\n' + text.part.name();
  }
  return sha256(recipe);
}

// The made tokenizer and, beside it, its digest as the tool sha256sum writes it.
fs::path digest_file(const fs::path& file) {
  return file.string() + ".sha256";
}

std::string digest_line(const std::string& bytes, const fs::path& file) {
  return sha256(bytes) + "  " + file.filename().string() + '\n';
}

// Nothing where it is not there or not whole.
std::optional<std::string> read_made(const fs::path& file) {
  std::error_code error;
  if (!fs::exists(file, error) || !fs::exists(digest_file(file), error)) {
    return std::nullopt;
  }
  std::string bytes = read_regular_file(file);
  const bool whole = read_regular_file(digest_file(file)) == digest_line(bytes, file);
  return whole ? std::optional(std::move(bytes)) : std::nullopt;
}

// What stands under the names of a tokenizer that is to be made: nothing, or one of ours, damaged.
// The digest is written first, so that only ours has one. Throws UserError where it is somebody's.
void require_replaceable(const fs::path& file) {
  for (const fs::path& name : {file, digest_file(file)}) {
    if (is_link(name)) {
      throw UserError(name.string() + ": is a link where a tokenizer is to be written; remove it");
    }
  }
  const std::string mark = "  " + file.filename().string() + '\n';
  const bool has_digest = has_entry(digest_file(file));
  if (has_digest && !read_regular_file(digest_file(file)).ends_with(mark)) {
    throw UserError(digest_file(file).string() +
                    ": stands where the digest of a tokenizer belongs and is none, so it is not "
                    "replaced; remove it");
  }
  if (has_entry(file) && !has_digest) {
    throw UserError(file.string() +
                    ": stands where a tokenizer belongs and is none of this program, so it is not "
                    "replaced; remove it");
  }
  if (has_entry(file)) {
    log::warn(file.string() + ": is damaged; it is made again");
  }
}

// `findings` is set to what came by in the text.
std::string make_from(const TextSource& text, const Config& config, bool progress,
                      TextFindings& findings) {
  const TextPass pass{.source = text,
                      .label = is_word(config) ? "counting words" : "reading lines",
                      .threads = text_threads(config.train),
                      .progress = progress};
  return is_word(config) ? make_word_dictionary(pass, config.tokenizer, findings)
                         : make_sentencepiece_model(pass, config.tokenizer, findings);
}

constexpr const char* kMadeName = "tokenizer-";

// Where the made one is kept.
fs::path made_file(const TextSource& text, const Config& config, FileDigests& digests) {
  const std::string recipe = recipe_digest(text, config, digests);
  return fs::path(config.data.cache_dir) /
         (kMadeName + recipe.substr(0, 32) + (is_word(config) ? ".txt" : ".model"));
}

// Else a text need not be digested to know that its tokenizer is not there.
bool holds_some_tokenizer(const fs::path& directory) {
  std::error_code none;
  for (const fs::directory_entry& entry : fs::directory_iterator(directory, none)) {
    if (entry.path().filename().string().starts_with(kMadeName)) {
      return true;
    }
  }
  return false;
}

std::string obtain_made(const Config& config, FileDigests& digests, bool progress) {
  const fs::path directory = config.data.cache_dir;
  const TextSource text = training_text(config);
  const std::vector<FileIdentity> before = identify(text.files);
  const fs::path file = made_file(text, config, digests);
  if (std::optional<std::string> made = read_made(file)) {
    return *std::move(made);
  }
  const FileLock lock = lock_cache(directory);
  if (std::optional<std::string> made = read_made(file)) {  // by the one we waited for
    return *std::move(made);
  }
  require_replaceable(file);
  TextFindings told_with_the_split;
  std::string bytes = make_from(text, config, progress, told_with_the_split);
  check_unchanged(text.files, before, "data.train");
  write_file_atomically(digest_file(file), digest_line(bytes, file));
  write_file_atomically(file, bytes);
  return bytes;
}

const char* describe(TokenizerType type) {
  switch (type) {
    case TokenizerType::sentencepiece:
      return "sentencepiece model";
    case TokenizerType::bpe:
      return "byte-level BPE vocabulary";
    case TokenizerType::word:
      break;
  }
  return "word dictionary";
}

const char* spelled(TokenizerType type) {
  return name_of<TokenizerType>(kTokenizerNames, type);
}

std::shared_ptr<const Tokenizer> load_configured(const TokenizerConfig& config) {
  std::shared_ptr<const Tokenizer> tokenizer = load_tokenizer(config.path);
  const TokenizerType found = tokenizer_type(tokenizer->serialized()).value_or(TokenizerType::word);
  if (found != config.type) {
    throw UserError("tokenizer.path: " + config.path + " is a " + describe(found) +
                    ", but tokenizer.type is \"" + spelled(config.type) + "\"; set it to \"" +
                    spelled(found) + '"');
  }
  return tokenizer;
}

// These are not made here.
void refuse_bpe(const TokenizerConfig& config, const std::string& advice) {
  if (config.type == TokenizerType::bpe) {
    throw UserError(advice +
                    "; GPT-2's is fetched by scripts/get_gpt2_bpe.sh (PyPI's openai-whisper holds "
                    "it as gpt2.tiktoken, Hugging Face's gpt2 as vocab.json and merges.txt)");
  }
}

}  // namespace

std::string make_tokenizer(const Config& config, bool progress) {
  refuse_bpe(config.tokenizer,
             "tokenizer.type: \"bpe\" is not trained by this program; set \"sentencepiece\" with "
             "tokenizer.model_type \"bpe\" to train one, or tokenizer.path to a vocabulary");
  const TextSource text = training_text(config);
  TextFindings findings;
  std::string bytes = make_from(text, config, progress, findings);
  warn_of_findings("data.train", text, findings);
  return bytes;
}

std::shared_ptr<const Tokenizer> obtain_tokenizer(const Config& config, FileDigests& digests,
                                                  bool progress) {
  if (!config.tokenizer.path.empty()) {
    return load_configured(config.tokenizer);
  }
  refuse_bpe(config.tokenizer,
             "tokenizer.path: is empty, and \"bpe\" needs a vocabulary, which is not trained here");
  return parse_tokenizer(obtain_made(config, digests, progress),
                         "the tokenizer made from data.train");
}

std::shared_ptr<const Tokenizer> find_tokenizer(const Config& config, FileDigests& digests) {
  if (!config.tokenizer.path.empty()) {
    return load_configured(config.tokenizer);
  }
  if (config.data.train.empty() || !holds_some_tokenizer(config.data.cache_dir)) {
    return nullptr;
  }
  try {
    const std::optional<std::string> made =
        read_made(made_file(training_text(config), config, digests));
    return made ? parse_tokenizer(*made, "the tokenizer made from data.train") : nullptr;
  } catch (const UserError&) {
    return nullptr;  // whoever prepares the text is told
  }
}

}  // namespace transnormer
