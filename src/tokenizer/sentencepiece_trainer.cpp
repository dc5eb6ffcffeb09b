#include "tokenizer/sentencepiece_trainer.h"

#include <sentencepiece_trainer.h>
#include <sys/resource.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <iostream>
#include <optional>
#include <string_view>
#include <unordered_map>

#include "log/console.h"
#include "tokenizer/sentencepiece_log.h"
#include "tokenizer/utf8.h"
#include "util/child_process.h"
#include "util/error.h"
#include "util/memory.h"
#include "util/units.h"

namespace transnormer {
namespace {

constexpr std::string_view kWorker = "sentencepiece-worker";
constexpr char kModel = 'M';    // before an answer of the worker's,
constexpr char kRefusal = 'R';  // or before the library's reason for having none

// The worker's standard input.
class InputLines final : public sentencepiece::SentenceIterator {
 public:
  InputLines() { InputLines::Next(); }
  bool done() const override { return !std::cin; }
  void Next() override { std::getline(std::cin, line_); }
  const std::string& value() const override { return line_; }
  sentencepiece::util::Status status() const override { return {}; }

 private:
  std::string line_;
};

std::unordered_map<std::string, std::string> arguments(const std::string& model_type,
                                                       const std::string& vocab_size,
                                                       const std::string& byte_fallback) {
  return {
      {"model_type", model_type},
      {"vocab_size", vocab_size},
      {"byte_fallback", byte_fallback},
      {"normalization_rule_name", "identity"},
      {"remove_extra_whitespaces", "false"},
      {"add_dummy_prefix", "false"},
      {"bos_id", "0"},
      {"pad_id", "1"},
      {"eos_id", "2"},
      {"unk_id", "3"},
      // Lines are never too long for it; the library's limit of 4,192 bytes would drop paragraphs.
      {"max_sentence_length", "1073741824"},
      // Sums run over this many parts, so the number must not be that of the machine.
      {"num_threads", "16"},
  };
}

// The library's refusals, in words of the config.
UserError refusal(const std::string& message, const TokenizerConfig& config) {
  const std::string size = std::to_string(config.vocab_size);
  constexpr std::string_view kMost = "Please set it to a value <= ";
  if (const std::size_t at = message.find(kMost); at != std::string::npos) {
    const std::string rest = message.substr(at + kMost.size());
    return UserError("tokenizer.vocab_size: the training text yields fewer than " + size +
                     " pieces; lower it to at most " + rest.substr(0, rest.find('.')));
  }
  if (message.find("smaller than required_chars") != std::string::npos) {
    return UserError("tokenizer.vocab_size: " + size +
                     " is too small for the characters of the training text" +
                     (config.byte_fallback ? " and the 256 byte pieces" : ""));
  }
  return UserError("tokenizer: sentencepiece cannot be trained on this text: " + message);
}

// Where a line that is too long is cut: before its last space, else between two characters.
std::size_t place_to_cut(std::string_view line) {
  const std::size_t space = line.substr(0, kLongestTrainingLine).rfind(' ');
  if (space != std::string_view::npos && space > 0) {
    return space;
  }
  std::size_t place = kLongestTrainingLine;
  while (place > kLongestTrainingLine - 4 && continues_character(line[place])) {
    --place;
  }
  return place;
}

// Sends all the lines to the worker. Returns their characters, in all; nothing where it has ended.
std::optional<std::int64_t> send_lines(const NextLine& next_line, ChildProcess& worker) {
  constexpr std::size_t kPiece = std::size_t{1} << 16;
  std::int64_t characters = 0;
  std::int64_t cut_lines = 0;
  std::string line;
  std::string piece;
  while (next_line(line)) {
    characters += std::ranges::count_if(line, std::not_fn(continues_character));
    std::string_view rest = line;
    cut_lines += rest.size() > kLongestTrainingLine ? 1 : 0;
    while (rest.size() > kLongestTrainingLine) {
      const std::size_t place = place_to_cut(rest);
      piece.append(rest.substr(0, place)).append("\n");
      rest.remove_prefix(place);
    }
    piece.append(rest).append("\n");
    if (piece.size() >= kPiece) {
      if (!worker.send(piece)) {
        return std::nullopt;
      }
      piece.clear();
    }
  }
  if (!worker.send(piece)) {
    return std::nullopt;
  }
  if (cut_lines > 0) {
    log::warn("tokenizer: " + format_count(cut_lines) + (cut_lines == 1 ? " line" : " lines") +
              " of the training text longer than " + format_count(kLongestTrainingLine) +
              " bytes; sentencepiece learns from parts of at most that length");
  }
  return characters;
}

// The library asks for minutes to find that a text does not yield what it never can: each piece
// that is no special is a byte, a character, or what one place in the text was joined to.
void check_size(std::int64_t characters, const TokenizerConfig& config) {
  if (characters == 0) {
    throw UserError("data.train: the text is empty: there is nothing to learn from");
  }
  constexpr std::int64_t kSpecials = 4;
  constexpr std::int64_t kBytes = 256;
  constexpr std::int64_t kLargest = std::int64_t{1} << 30;  // its sums of sizes have 32 bits
  const std::int64_t most =
      std::min(kLargest, kSpecials + (config.byte_fallback ? kBytes : 0) + 2 * characters);
  if (config.vocab_size > most) {
    throw UserError("tokenizer.vocab_size: the training text yields fewer than " +
                    std::to_string(config.vocab_size) + " pieces; it has " +
                    format_count(characters) + " characters");
  }
}

// More than the machine has would take the memory of others. Counts what can be written to.
void limit_memory() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_DATA, &limit) == 0) {
    limit.rlim_cur = std::min<rlim_t>(limit.rlim_cur, static_cast<rlim_t>(machine_memory_bytes()));
    (void)::setrlimit(RLIMIT_DATA, &limit);
  }
}

}  // namespace

std::string train_sentencepiece(const NextLine& next_line, const TokenizerConfig& config) {
  if (config.vocab_size <= 0) {
    throw UserError(
        "tokenizer.vocab_size: must be set to make a sentencepiece model, for instance 8000");
  }
  ChildProcess worker({std::string(kWorker),
                       config.model_type == SentencePieceModel::bpe ? "bpe" : "unigram",
                       std::to_string(config.vocab_size), config.byte_fallback ? "true" : "false"});
  if (const auto characters = send_lines(next_line, worker)) {
    check_size(*characters, config);
  }
  const std::string answer = worker.receive();
  const std::string ending = worker.ending();
  if (!ending.empty() || answer.empty()) {
    throw UserError("tokenizer: sentencepiece cannot be trained on this text: the library " +
                    (ending.empty() ? "gave no answer" : ending) +
                    "; let it learn from fewer or shorter lines (tokenizer.sample_lines)");
  }
  if (answer.front() == kRefusal) {
    throw refusal(answer.substr(1), config);
  }
  return answer.substr(1);
}

bool is_sentencepiece_worker(int argc, char** argv) {
  return argc == 5 && argv[1] == kWorker;
}

int run_sentencepiece_worker(char** argv) {
  follow_parent();
  limit_memory();
  silence_sentencepiece();
  std::ios::sync_with_stdio(false);
  InputLines lines;
  std::string model;
  const auto status = sentencepiece::SentencePieceTrainer::Train(
      arguments(argv[2], argv[3], argv[4]), &lines, &model);
  std::cout << (status.ok() ? kModel : kRefusal) << (status.ok() ? model : status.error_message());
  std::cout.flush();
  return std::cout ? 0 : 1;
}

}  // namespace transnormer
