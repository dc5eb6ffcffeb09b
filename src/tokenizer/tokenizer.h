// Text to token ids and back.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "config/config.h"

namespace transnormer {

using TokenId = std::int32_t;

struct TextLosses;

// Turns ids into text one at a time: what a token adds may depend on those before it (spaces
// between words, bytes that are not a whole character yet).
class StreamDecoder {
 public:
  virtual ~StreamDecoder() = default;
  // The text that this token adds; empty while a character is incomplete.
  [[nodiscard]] virtual std::string add(TokenId id) = 0;
  // What is left at the end (an incomplete character becomes U+FFFD).
  [[nodiscard]] virtual std::string finish() = 0;
};

// Immutable once made, so any number of threads may encode at once. An id past size(), which a
// model with more rows than the tokenizer has tokens may make, reads as the unknown token.
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  // Appends the ids of one line, taken verbatim (without its line end; no begin or end token).
  void encode_line(std::string_view line, std::vector<TokenId>& ids) const {
    encode(line, ids, nullptr);
  }
  // The same, and notes what these ids do not tell of the line.
  void encode_line(std::string_view line, std::vector<TokenId>& ids, TextLosses& losses) const {
    encode(line, ids, &losses);
  }

  // Text of the ids; an end token shows as a line end.
  [[nodiscard]] virtual std::string decode(std::span<const TokenId> ids) const;
  [[nodiscard]] virtual std::unique_ptr<StreamDecoder> stream_decoder() const = 0;

  // One token as people read it, by itself: a word, a special's name, a piece as its vocabulary
  // spells it. Bytes that are no whole character become U+FFFD.
  [[nodiscard]] virtual std::string piece(TokenId id) const = 0;

  [[nodiscard]] virtual std::int64_t size() const = 0;
  [[nodiscard]] virtual std::optional<TokenId> end_id() const = 0;
  [[nodiscard]] virtual std::optional<TokenId> begin_id() const = 0;
  [[nodiscard]] virtual TokenId unknown_id() const = 0;

  // The first input of every stream: end token, else begin, else unknown.
  [[nodiscard]] TokenId first_input() const;

  // The file as it is stored in checkpoints, its name there, and its SHA-256.
  [[nodiscard]] virtual const std::string& serialized() const = 0;
  [[nodiscard]] virtual std::string file_name() const = 0;  // tokenizer.txt, .model or .json
  [[nodiscard]] const std::string& digest() const;          // of serialized(), computed once

 private:
  virtual void encode(std::string_view line, std::vector<TokenId>& ids,
                      TextLosses* losses) const = 0;

  mutable std::once_flag digest_once_;
  mutable std::string digest_;
};

// What kind of tokenizer file these bytes hold, told by content; nothing where they are neither a
// sentencepiece model nor a BPE vocabulary nor text that could be a dictionary.
[[nodiscard]] std::optional<TokenizerType> tokenizer_type(std::string_view bytes);

// Reads a sentencepiece model, a BPE vocabulary or a dictionary. `name` stands in messages. Throws
// UserError for anything else.
[[nodiscard]] std::shared_ptr<const Tokenizer> parse_tokenizer(std::string bytes,
                                                               const std::string& name);
// The same of a file, with what belongs to it beside it, or of a directory with a BPE vocabulary
// (bpe_files.h).
[[nodiscard]] std::shared_ptr<const Tokenizer> load_tokenizer(const std::filesystem::path& path);

}  // namespace transnormer
