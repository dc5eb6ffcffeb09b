#include "tokenizer/sentencepiece_tokenizer.h"

#include <sentencepiece_processor.h>

#include <algorithm>
#include <charconv>
#include <stdexcept>
#include <utility>

#include "tokenizer/sentencepiece_log.h"
#include "tokenizer/text_losses.h"
#include "tokenizer/utf8.h"
#include "util/error.h"

namespace transnormer {
namespace {

using sentencepiece::SentencePieceProcessor;

constexpr std::string_view kSpaceSymbol = "\xE2\x96\x81";  // U+2581 stands for a space

std::string with_spaces(std::string_view piece) {
  std::string text;
  while (true) {
    const std::size_t found = piece.find(kSpaceSymbol);
    text.append(piece.substr(0, found));
    if (found == std::string_view::npos) {
      return text;
    }
    text += ' ';
    piece.remove_prefix(found + kSpaceSymbol.size());
  }
}

char byte_of(const std::string& piece) {  // "<0x0A>"
  constexpr std::size_t kSize = 6;        // a damaged model may have others
  unsigned value = 0;
  if (piece.size() == kSize) {
    std::from_chars(piece.data() + 3, piece.data() + 5, value, 16);
  }
  return static_cast<char>(value);
}

// The library's decoding, one piece at a time. It drops the space that encoding put before a line
// (or all leading spaces, where the model removes extra ones), and joins byte pieces to characters.
class PieceDecoder final : public StreamDecoder {
 public:
  PieceDecoder(const SentencePieceProcessor& processor, const SentencePieceSpec& spec)
      : processor_(processor), spec_(spec) {}

  std::string add(TokenId id) override {
    id = id < processor_.GetPieceSize() ? id : processor_.unk_id();
    if (processor_.IsByte(id)) {
      bytes_ += byte_of(processor_.IdToPiece(id));
      return emitted(take_characters());
    }
    std::string text = emitted(finish());
    if (id == processor_.eos_id()) {
      line_has_text_ = false;
      prefix_dropped_ = false;
      return text + '\n';
    }
    return text + emitted(text_of(id));
  }

  std::string finish() override {
    std::string text = take_characters();
    for (; !bytes_.empty(); bytes_.erase(0, 1)) {
      text += kReplacementCharacter;
    }
    return text;
  }

 private:
  // Takes all characters off the pending bytes that need no further byte.
  std::string take_characters() {
    std::string text;
    while (!bytes_.empty()) {
      const Utf8Step step = utf8_step(bytes_);
      if (step.kind == Utf8Step::Kind::incomplete) {
        break;
      }
      text += step.kind == Utf8Step::Kind::character ? std::string_view(bytes_).substr(0, step.size)
                                                     : kReplacementCharacter;
      bytes_.erase(0, step.size);
    }
    return text;
  }

  std::string text_of(TokenId id) {
    if (processor_.IsControl(id)) {
      return "";
    }
    if (processor_.IsUnknown(id)) {
      return spec_.unknown_surface;
    }
    std::string_view piece = processor_.IdToPiece(id);
    const bool may_drop = !line_has_text_ && !prefix_dropped_ &&
                          (spec_.add_dummy_prefix || spec_.remove_extra_whitespaces);
    if (may_drop && piece.starts_with(kSpaceSymbol)) {
      piece.remove_prefix(kSpaceSymbol.size());
      prefix_dropped_ = !spec_.remove_extra_whitespaces;
    }
    return with_spaces(piece);
  }

  std::string emitted(std::string text) {
    line_has_text_ = line_has_text_ || !text.empty();
    return text;
  }

  const SentencePieceProcessor& processor_;
  const SentencePieceSpec& spec_;
  std::string bytes_;  // of byte pieces, not a whole character yet
  bool line_has_text_ = false;
  bool prefix_dropped_ = false;
};

std::optional<TokenId> id_or_nothing(int id) {
  return id < 0 ? std::nullopt : std::optional<TokenId>(id);
}

void check(const sentencepiece::util::Status& status, const char* what) {
  if (!status.ok()) {
    throw std::runtime_error(std::string("sentencepiece cannot ") + what + ": " +
                             status.error_message());
  }
}

}  // namespace

SentencePieceTokenizer::SentencePieceTokenizer(std::string model, const std::string& name)
    : model_(std::move(model)), processor_(std::make_unique<SentencePieceProcessor>()) {
  silence_sentencepiece();
  const auto status = processor_->LoadFromSerializedProto(model_);
  if (!status.ok() || processor_->GetPieceSize() == 0) {
    throw UserError(name + ": is not a whole sentencepiece model (cut or damaged?)");
  }
  spec_ = read_sentencepiece_spec(model_);
  for (int id = 0; id < processor_->GetPieceSize(); ++id) {
    const std::string& piece = processor_->IdToPiece(id);
    texts_.push_back(processor_->IsByte(id)      ? std::string(1, byte_of(piece))
                     : processor_->IsControl(id) ? std::string()
                                                 : with_spaces(piece));
  }
}

SentencePieceTokenizer::~SentencePieceTokenizer() = default;

void SentencePieceTokenizer::encode(std::string_view line, std::vector<TokenId>& ids,
                                    TextLosses* losses) const {
  std::vector<int> of_line;
  check(processor_->Encode(line, &of_line), "encode");
  ids.insert(ids.end(), of_line.begin(), of_line.end());
  if (losses != nullptr) {
    note_losses(line, of_line, *losses);
  }
}

void SentencePieceTokenizer::note_losses(std::string_view line, std::span<const int> ids,
                                         TextLosses& losses) const {
  if (std::ranges::find(ids, processor_->unk_id()) != ids.end()) {
    std::vector<std::string> pieces;
    check(processor_->Encode(line, &pieces), "encode");
    for (const std::string& piece : pieces) {
      if (processor_->PieceToId(piece) == processor_->unk_id()) {
        losses.unknown.add(with_spaces(piece), 1);
      }
    }
    return;  // nothing is read back where tokens are unknown
  }
  std::string text;
  text.reserve(line.size() + 1);
  for (const int id : ids) {
    text += texts_[static_cast<std::size_t>(id)];
  }
  std::string_view read = text;
  if ((spec_.add_dummy_prefix || spec_.remove_extra_whitespaces) && read.starts_with(' ')) {
    read.remove_prefix(1);
  }
  if (read == line) {
    losses.read_back.note_line(!ids.empty(), false, false);
    return;
  }
  const bool first = line.starts_with(' ') && !read.starts_with(' ');
  line.remove_prefix(first ? 1 : 0);
  const bool last = line.ends_with(' ') && !read.ends_with(' ');
  line.remove_suffix(last ? 1 : 0);
  if (read == line) {
    losses.read_back.note_line(!ids.empty(), first, last);
  } else {
    losses.read_back.note_altered_line();
  }
}

std::string SentencePieceTokenizer::decode(std::span<const TokenId> ids) const {
  std::string text;
  for (auto begin = ids.begin(); begin != ids.end();) {
    const auto end = std::find(begin, ids.end(), processor_->eos_id());
    std::vector<int> line(begin, end);
    std::ranges::transform(line, line.begin(), [this](int id) { return known(id); });
    std::string decoded;
    check(processor_->Decode(line, &decoded), "decode");
    text += decoded;
    begin = end;
    if (begin != ids.end()) {
      text += '\n';
      ++begin;
    }
  }
  return text;
}

std::unique_ptr<StreamDecoder> SentencePieceTokenizer::stream_decoder() const {
  return std::make_unique<PieceDecoder>(*processor_, spec_);
}

std::string SentencePieceTokenizer::piece(TokenId id) const {
  return well_formed(processor_->IdToPiece(known(id)));
}

std::int64_t SentencePieceTokenizer::size() const {
  return processor_->GetPieceSize();
}

std::optional<TokenId> SentencePieceTokenizer::end_id() const {
  return id_or_nothing(processor_->eos_id());
}

std::optional<TokenId> SentencePieceTokenizer::begin_id() const {
  return id_or_nothing(processor_->bos_id());
}

TokenId SentencePieceTokenizer::unknown_id() const {
  return processor_->unk_id();
}

}  // namespace transnormer
