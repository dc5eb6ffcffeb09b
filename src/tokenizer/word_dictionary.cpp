#include "tokenizer/word_dictionary.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <numeric>

#include "tokenizer/word_tokenizer.h"
#include "util/error.h"

namespace transnormer {
namespace {

bool is_special_word(std::string_view word) {
  constexpr std::array<std::string_view, 4> kWords{"<s>", "<pad>", "</s>", "<unk>"};
  return std::ranges::find(kWords, word) != kWords.end();
}

// Numbers of the words that are kept, in the dictionary's order.
std::vector<std::int32_t> kept_words(const WordCounts& counts, const TokenizerConfig& config) {
  std::vector<std::int32_t> kept;
  for (const std::int32_t number : counts.by_falling_count()) {
    if (counts.count(number) >= config.min_count && !is_special_word(counts.words().word(number))) {
      kept.push_back(number);
    }
  }
  const auto most = static_cast<std::size_t>(config.vocab_size - WordTokenizer::kSpecials);
  if (config.vocab_size > 0 && kept.size() > most) {
    kept.resize(most);
  }
  return kept;
}

// fairseq's name for an unused entry.
std::string unused_word(int number) {
  std::array<char, 32> name{};
  std::snprintf(name.data(), name.size(), "madeupword%04d", number);
  return name.data();
}

// Up to the multiple that unused entries fill.
std::int64_t filled_up(std::int64_t entries, const TokenizerConfig& config) {
  const std::int64_t multiple = config.pad_to_multiple;
  return (entries + multiple - 1) / multiple * multiple;
}

}  // namespace

void WordCounts::add_text(std::string_view text) {
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    for_each_word(line, [this](std::string_view word) { add(word, 1); });
    text.remove_prefix(std::min(line.size() + 1, text.size()));
  }
}

void WordCounts::merge(const WordCounts& other) {
  for (std::int32_t number = 0; number < other.words_.size(); ++number) {
    add(other.words_.word(number), other.count(number));
  }
}

void WordCounts::add(std::string_view word, std::int64_t times) {
  const auto number = static_cast<std::size_t>(words_.insert(word));
  if (number == counts_.size()) {
    counts_.push_back(0);
  }
  counts_[number] += times;
}

std::vector<std::int32_t> WordCounts::by_falling_count() const {
  std::vector<std::int32_t> numbers(counts_.size());
  std::iota(numbers.begin(), numbers.end(), 0);
  std::ranges::sort(numbers, [this](std::int32_t a, std::int32_t b) {
    return count(a) != count(b) ? count(a) > count(b) : words_.word(a) < words_.word(b);
  });
  return numbers;
}

std::string make_dictionary(const WordCounts& counts, const TokenizerConfig& config) {
  if (config.vocab_size > 0 && config.vocab_size <= WordTokenizer::kSpecials) {
    throw UserError("tokenizer.vocab_size: " + std::to_string(config.vocab_size) +
                    " leaves no room for words; the 4 specials are included, so at least 5");
  }
  const std::vector<std::int32_t> kept = kept_words(counts, config);
  if (kept.empty()) {
    if (config.min_count <= 1) {
      throw UserError("data.train: the text holds no word beside specials");
    }
    throw UserError("tokenizer.min_count: no word of the training text occurs " +
                    std::to_string(config.min_count) + " times or more; lower it");
  }
  std::string dictionary;
  for (const std::int32_t number : kept) {
    dictionary.append(counts.words().word(number));
    dictionary += ' ' + std::to_string(counts.count(number)) + '\n';
  }
  std::int64_t size = WordTokenizer::kSpecials + static_cast<std::int64_t>(kept.size());
  const std::int64_t wanted = filled_up(size, config);
  for (int number = 0; size < wanted; ++number) {
    const std::string word = unused_word(number);
    // A word of the text keeps its meaning, also one that was left out.
    if (counts.words().find(word) < 0) {
      dictionary += word + " 0\n";
      ++size;
    }
  }
  return dictionary;
}

std::int64_t made_vocab_size(const TokenizerConfig& config) {
  return config.type == TokenizerType::word ? filled_up(config.vocab_size, config)
                                            : config.vocab_size;
}

}  // namespace transnormer
