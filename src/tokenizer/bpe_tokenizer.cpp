#include "tokenizer/bpe_tokenizer.h"

#include <utility>

#include "tokenizer/bpe_files.h"
#include "tokenizer/gpt2_pattern.h"
#include "tokenizer/text_losses.h"
#include "tokenizer/utf8.h"
#include "tokenizer/word_table.h"

namespace transnormer {
namespace {

class ByteDecoder final : public StreamDecoder {
 public:
  explicit ByteDecoder(const BpeTokenizer& tokenizer) : tokenizer_(tokenizer) {}

  std::string add(TokenId id) override {
    bytes_ += tokenizer_.decode({&id, 1});
    std::string text;
    std::size_t done = 0;
    while (done < bytes_.size()) {
      const std::string_view rest = std::string_view(bytes_).substr(done);
      const Utf8Step step = utf8_step(rest);
      if (step.kind == Utf8Step::Kind::incomplete) {
        break;
      }
      text += step.kind == Utf8Step::Kind::character ? rest.substr(0, step.size)
                                                     : kReplacementCharacter;
      done += step.size;
    }
    bytes_.erase(0, done);
    return text;
  }

  std::string finish() override { return well_formed(std::exchange(bytes_, {})); }

 private:
  const BpeTokenizer& tokenizer_;
  std::string bytes_;  // no whole character yet
};

BpeMerger merger_of(const BpeVocabulary& vocabulary) {
  BpeMerger merger(vocabulary.bytes, vocabulary.merges.size());
  for (const BpeMerge& merge : vocabulary.merges) {
    merger.add(merge);
  }
  return merger;
}

}  // namespace

// Remembers the tokens of pieces that came before: most of a text are words that come again.
class BpeTokenizer::Encoder {
 public:
  explicit Encoder(const BpeMerger& merger) : merger_(merger) {}

  void encode(std::string_view piece, std::vector<TokenId>& ids) {
    if (piece.size() > kLongest) {
      merger_.merge(piece, ids, memory_);
      return;
    }
    if (words_.size() == kMostWords) {
      words_ = WordTable();
      ends_ = {0};
      tokens_.clear();
    }
    const auto number = static_cast<std::size_t>(words_.insert(piece));
    if (number + 1 == ends_.size()) {
      merger_.merge(piece, tokens_, memory_);
      ends_.push_back(static_cast<std::uint32_t>(tokens_.size()));
    }
    for (std::uint32_t i = ends_[number]; i < ends_[number + 1]; ++i) {
      ids.push_back(tokens_[i]);
    }
  }

 private:
  static constexpr std::size_t kLongest = 48;
  static constexpr std::int32_t kMostWords = 1 << 17;

  const BpeMerger& merger_;
  BpeMerger::Memory memory_;
  WordTable words_;
  std::vector<std::uint32_t> ends_{0};  // word n has tokens [ends_[n], ends_[n + 1])
  std::vector<TokenId> tokens_;
};

BpeTokenizer::BpeTokenizer(BpeVocabulary vocabulary)
    : vocabulary_(std::move(vocabulary)),
      merger_(merger_of(vocabulary_)),
      serialized_(tokenizer_json(vocabulary_)) {}

BpeTokenizer::~BpeTokenizer() = default;

const BpeToken& BpeTokenizer::token(TokenId id) const {
  return vocabulary_.tokens[static_cast<std::size_t>(id < size() ? id : unknown_id())];
}

std::unique_ptr<BpeTokenizer::Encoder> BpeTokenizer::take_encoder() const {
  {
    const std::lock_guard lock(mutex_);
    if (!idle_.empty()) {
      std::unique_ptr<Encoder> encoder = std::move(idle_.back());
      idle_.pop_back();
      return encoder;
    }
  }
  return std::make_unique<Encoder>(merger_);
}

void BpeTokenizer::encode(std::string_view line, std::vector<TokenId>& ids,
                          TextLosses* losses) const {
  std::unique_ptr<Encoder> encoder = take_encoder();
  for (std::size_t at = 0; at < line.size();) {
    const std::size_t end = gpt2_piece_end(line, at);
    encoder->encode(line.substr(at, end - at), ids);
    at = end;
  }
  if (losses != nullptr) {
    losses->read_back.note_line(!line.empty(), false, false);
  }
  const std::lock_guard lock(mutex_);
  idle_.push_back(std::move(encoder));
}

std::string BpeTokenizer::decode(std::span<const TokenId> ids) const {
  std::string text;
  for (const TokenId id : ids) {
    const bool is_end = id == vocabulary_.end || id >= size();
    text += is_end ? std::string_view("\n") : std::string_view(token(id).bytes);
  }
  return text;
}

std::unique_ptr<StreamDecoder> BpeTokenizer::stream_decoder() const {
  return std::make_unique<ByteDecoder>(*this);
}

std::string BpeTokenizer::piece(TokenId id) const {
  return token(id).spelling;
}

}  // namespace transnormer
