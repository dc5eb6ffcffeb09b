#include "tokenizer/word_tokenizer.h"

#include <algorithm>
#include <charconv>
#include <utility>

#include "config/json_tree.h"
#include "tokenizer/plain_text.h"
#include "tokenizer/text_losses.h"
#include "tokenizer/utf8.h"
#include "util/error.h"

namespace transnormer {
namespace {

class WordDecoder final : public StreamDecoder {
 public:
  explicit WordDecoder(const WordTable& words) : words_(words) {}

  std::string add(TokenId id) override {
    if (id == WordTokenizer::kEnd) {
      at_line_start_ = true;
      return "\n";
    }
    std::string text = at_line_start_ ? "" : " ";
    at_line_start_ = false;
    return text.append(words_.word(id < words_.size() ? id : WordTokenizer::kUnknown));
  }

  std::string finish() override { return ""; }

 private:
  const WordTable& words_;
  bool at_line_start_ = true;
};

// The word of a "word count" line; empty where the line is something else.
std::string_view word_of(std::string_view line) {
  const std::size_t space = line.find(' ');
  if (space == std::string_view::npos) {
    return {};
  }
  const std::string_view digits = line.substr(space + 1);
  std::uint64_t count = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), count);
  const bool is_count = error == std::errc() && end == digits.data() + digits.size();
  return is_count ? line.substr(0, space) : std::string_view();
}

}  // namespace

WordTokenizer::WordTokenizer(std::string dictionary, const std::string& name)
    : dictionary_(std::move(dictionary)),
      words_(static_cast<std::size_t>(std::ranges::count(dictionary_, '\n') + 1 + kSpecials)) {
  for (const char* special : {"<s>", "<pad>", "</s>", "<unk>"}) {
    words_.insert(special);
  }
  std::string_view rest = without_byte_order_mark(dictionary_);
  for (std::int64_t number = 1; !rest.empty(); ++number) {
    const std::string_view line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(line.size() + 1, rest.size()));
    const auto where = [&] { return name + ": line " + std::to_string(number) + ": "; };
    const std::string_view word = word_of(line);
    if (word.empty()) {
      const bool at_once = number == 1;  // then it is no dictionary at all
      throw UserError((at_once
                           ? name + ": is neither a dictionary nor a sentencepiece model: line 1: "
                           : where()) +
                      "expected \"word count\", found " + printable(line, true));
    }
    const std::int32_t known = words_.size();
    const std::int32_t id = words_.insert(word);
    if (id < kSpecials) {
      throw UserError(where() + printable(word, true) +
                      " is a special, which a dictionary does not list");
    }
    if (id < known) {
      throw UserError(where() + "the word " + printable(word, true) + " is already on line " +
                      std::to_string(id - kSpecials + 1));
    }
  }
}

void WordTokenizer::encode(std::string_view line, std::vector<TokenId>& ids,
                           TextLosses* losses) const {
  const std::size_t first = ids.size();
  std::size_t letters = 0;
  bool has_line_end = false;  // the word </s> reads as a line end
  for_each_word(line, [&](std::string_view word) {
    const std::int32_t id = words_.find(word);
    ids.push_back(id < 0 ? kUnknown : id);
    letters += word.size();
    has_line_end = has_line_end || id == kEnd;
    if (losses != nullptr && ids.back() == kUnknown) {
      losses->unknown.add(word, 1);
    }
  });
  if (losses != nullptr) {
    const std::size_t words = ids.size() - first;
    const std::size_t spaces = line.size() - letters;
    const bool starts = line.starts_with(' ');
    const bool ends = words > 0 && line.ends_with(' ');
    const std::size_t between = words == 0 ? 0 : words - 1;
    if (has_line_end || spaces != between + (starts ? 1 : 0) + (ends ? 1 : 0)) {
      losses->read_back.note_altered_line();
    } else {
      losses->read_back.note_line(words > 0, starts, ends);
    }
  }
}

std::string WordTokenizer::piece(TokenId id) const {
  return well_formed(words_.word(id < size() ? id : kUnknown));
}

std::unique_ptr<StreamDecoder> WordTokenizer::stream_decoder() const {
  return std::make_unique<WordDecoder>(words_);
}

}  // namespace transnormer
