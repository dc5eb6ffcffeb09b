#include "data/tokenize.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "data/parallel_text.h"
#include "data/text_reader.h"
#include "log/progress.h"
#include "tokenizer/plain_text.h"
#include "tokenizer/text_losses.h"
#include "util/error.h"
#include "util/processors.h"

namespace transnormer {
namespace {

struct ChunkTokens {
  std::vector<TokenId> ids;
  SplitCounts counts;  // without types and findings
  bool lacks_line_end = false;
};

// A word that began before the text is none of its own.
std::int64_t count_words(std::string_view text, bool continues_line) {
  std::int64_t words = 0;
  bool before = !continues_line;  // a separator, or the start
  for (const char byte : text) {
    const bool separator = byte == ' ' || byte == '\n';
    words += static_cast<std::int64_t>(before && !separator);
    before = separator;
  }
  return words;
}

void encode_lines(std::string_view text, const Tokenizer& tokenizer,
                  std::optional<TokenId> line_end, std::vector<TokenId>& ids, TextLosses& losses) {
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    tokenizer.encode_line(line, ids, losses);
    if (line_end) {
      ids.push_back(*line_end);
    }
    text.remove_prefix(std::min(line.size() + 1, text.size()));
  }
}

// What stands for line ends in the tokens.
struct LineEnds {
  LineEnd how;
  std::optional<TokenId> token;  // LineEnd::eos
};

ChunkTokens tokenize_chunk(const TextChunk& read, const Tokenizer& tokenizer,
                           const LineEnds& line_ends, TextLosses& losses) {
  const std::string& text = read.text;
  ChunkTokens chunk;
  chunk.ids.reserve(text.size() / 4);
  chunk.counts.bytes = static_cast<std::int64_t>(text.size());
  chunk.counts.words = count_words(text, read.continues_line);
  chunk.lacks_line_end = !read.line_goes_on && !text.ends_with('\n');
  chunk.counts.lines = count_byte(text, '\n') + (chunk.lacks_line_end ? 1 : 0);
  if (line_ends.how == LineEnd::keep) {
    tokenizer.encode_line(text, chunk.ids, losses);
  } else {
    encode_lines(text, tokenizer, line_ends.token, chunk.ids, losses);
  }
  chunk.counts.tokens = static_cast<std::int64_t>(chunk.ids.size());
  const TokenId unknown = tokenizer.unknown_id();
  if (unknown != tokenizer.end_id()) {  // else the tokenizer knows every text
    chunk.counts.unknown = std::ranges::count(chunk.ids, unknown);
  }
  return chunk;
}

LineEnds line_ends_of(const Tokenizer& tokenizer, LineEnd line_end) {
  if (line_end == LineEnd::keep && tokenizer_type(tokenizer.serialized()) != TokenizerType::bpe) {
    throw UserError(
        "data.line_end: \"keep\" needs a byte-level tokenizer, which has tokens for line ends, and "
        "this one is none; set it to \"eos\" or \"none\"");
  }
  if (line_end != LineEnd::eos) {
    return {line_end, std::nullopt};
  }
  if (!tokenizer.end_id()) {
    throw UserError(
        "data.line_end: \"eos\" needs an end token, and this sentencepiece model has none; "
        "set it to \"none\"");
  }
  return {line_end, tokenizer.end_id()};
}

// The commonest words of a stream of them. Memory does not grow with the text: long words are cut,
// and beyond a number of different ones the rarest are forgotten. Then counts are at least so much.
class CommonWords {
 public:
  void merge(const WordCounts& more) {
    constexpr std::size_t kLongest = 64;
    constexpr std::int32_t kMost = 1 << 17;
    for (std::int32_t number = 0; number < more.words().size(); ++number) {
      counts_.add(more.words().word(number).substr(0, kLongest), more.count(number));
    }
    if (counts_.words().size() > kMost) {
      WordCounts kept;
      for (const UnknownWord& word : commonest(kMost / 2)) {
        kept.add(word.word, word.count);
      }
      counts_ = std::move(kept);
    }
  }
  void merge(const CommonWords& more) { merge(more.counts_); }
  [[nodiscard]] std::vector<UnknownWord> commonest(std::size_t most) const {
    std::vector<std::int32_t> numbers = counts_.by_falling_count();
    numbers.resize(std::min(numbers.size(), most));
    std::vector<UnknownWord> words;
    for (const std::int32_t number : numbers) {
      words.push_back({std::string(counts_.words().word(number)), counts_.count(number)});
    }
    return words;
  }

 private:
  WordCounts counts_;
};

// What one thread notes of the chunks that it encodes.
class Notes {
 public:
  TextLosses& losses() { return losses_; }
  // After a chunk of so many bytes: new unknown words are put to the others now and then.
  void end_chunk(std::size_t bytes) {
    constexpr std::size_t kMostBytes = std::size_t{64} << 20;
    constexpr std::int32_t kMostWords = 1 << 15;
    bytes_ += bytes;
    if (bytes_ > kMostBytes || losses_.unknown.words().size() > kMostWords) {
      flush();
    }
  }
  void flush() {
    unknown_.merge(losses_.unknown);
    losses_.unknown = {};
    bytes_ = 0;
  }
  [[nodiscard]] const CommonWords& unknown() const { return unknown_; }

 private:
  TextLosses losses_;  // its unknown words since the last flush
  CommonWords unknown_;
  std::size_t bytes_ = 0;
};

// What the chunks of a text add up to.
struct Totals {
  SplitCounts counts;
  ReadBack read_back;
  CommonWords unknown;
  bool lacks_line_end = false;  // of some file

  void add(const ChunkTokens& chunk) {
    counts.tokens += chunk.counts.tokens;
    counts.unknown += chunk.counts.unknown;
    counts.lines += chunk.counts.lines;
    counts.bytes += chunk.counts.bytes;
    counts.words += chunk.counts.words;
    lacks_line_end = lacks_line_end || chunk.lacks_line_end;
  }
  void add(Notes& notes) {
    notes.flush();
    read_back.merge(notes.losses().read_back);
    unknown.merge(notes.unknown());
  }

  // End tokens tell line ends where all are there; without them there must be none.
  [[nodiscard]] bool tells_line_ends(LineEnd how) const {
    switch (how) {
      case LineEnd::eos:
        return !lacks_line_end;
      case LineEnd::none:
        return lacks_line_end && counts.lines == 1;
      case LineEnd::keep:
        break;
    }
    return true;
  }
  [[nodiscard]] Unreadable unreadable(LineEnd line_end) const {
    return counts.unknown > 0                             ? Unreadable::unknown_tokens
           : counts.findings.dropped_carriage_returns > 0 ? Unreadable::dropped_carriage_returns
           : !tells_line_ends(line_end)                   ? Unreadable::line_ends
           : read_back.altered()                          ? Unreadable::altered_lines
           : read_back.uneven()                           ? Unreadable::uneven_spaces
                                                          : Unreadable::no;
  }
};

}  // namespace

const char* describe(Unreadable why) {
  switch (why) {
    case Unreadable::unknown_tokens:
      return "unknown tokens hide what the text was";
    case Unreadable::dropped_carriage_returns:
      return "carriage returns were dropped";
    case Unreadable::line_ends:
      return "the tokens do not tell where lines end";
    case Unreadable::altered_lines:
      return "the tokens of some lines read as something else";
    case Unreadable::uneven_spaces:
      return "the tokens do not tell which lines begin or end with a space";
    case Unreadable::no:
      break;
  }
  return "the text can be read back from its tokens";
}

std::int64_t bytes_of(const std::vector<std::filesystem::path>& files) {
  std::int64_t bytes = 0;
  for (const std::filesystem::path& file : files) {
    std::error_code error;
    const auto size =
        std::filesystem::file_size(file == kStandardInput ? "/dev/stdin" : file, error);
    bytes += error ? 0 : static_cast<std::int64_t>(size);
  }
  return bytes;
}

void fail_empty(const TextSource& source) {
  if (source.part.splits()) {
    throw UserError("data.holdout: " + source.part.share_text() + " of this text leaves " +
                    (source.part.is_held_out
                         ? "no word for valid; set a larger share, or name a text in data.valid"
                         : "no word to train on; set a smaller share"));
  }
  const std::vector<std::filesystem::path>& files = source.files;
  throw UserError(text_name(files.front()) +
                  (files.size() > 1 ? " and " + std::to_string(files.size() - 1) + " more" : "") +
                  ": is empty: it holds no word");
}

int text_threads(const TrainConfig& config) {
  return useful_threads(config.threads);
}

SplitCounts tokenize(const TextPass& pass, const Tokenizer& tokenizer, LineEnd line_end,
                     const std::function<void(std::span<const TokenId>)>& sink) {
  const LineEnds line_ends = line_ends_of(tokenizer, line_end);
  TextReader reader(pass.source, kTextChunkBytes,
                    line_end == LineEnd::keep ? TextCut::white_space : TextCut::line_ends);
  log::ProgressBar bar(pass.label, bytes_of(pass.source.files), 0, pass.progress);
  Totals totals;
  std::vector<Notes> notes(static_cast<std::size_t>(pass.threads));
  std::vector<std::uint8_t> seen(static_cast<std::size_t>(tokenizer.size()), 0);
  for_each_chunk(
      reader, pass.threads,
      [&](int thread, const TextChunk& read) {
        Notes& own = notes[static_cast<std::size_t>(thread)];
        ChunkTokens chunk = tokenize_chunk(read, tokenizer, line_ends, own.losses());
        own.end_chunk(read.text.size());
        return chunk;
      },
      [&](const ChunkTokens& chunk) {
        for (const TokenId id : chunk.ids) {
          seen[static_cast<std::size_t>(id)] = 1;
        }
        totals.add(chunk);
        sink(chunk.ids);
        bar.update(reader.source_bytes());
      });
  bar.finish();
  for (Notes& of_thread : notes) {
    totals.add(of_thread);
  }
  SplitCounts& counts = totals.counts;
  if (counts.words == 0) {
    fail_empty(pass.source);
  }
  counts.types = std::ranges::count(seen, 1);
  counts.findings = reader.findings();
  counts.bytes += counts.findings.dropped_carriage_returns;
  counts.unreadable = totals.unreadable(line_end);
  counts.common_unknown = totals.unknown.commonest(kCommonUnknown);
  return counts;
}

}  // namespace transnormer
