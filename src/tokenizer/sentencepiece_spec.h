// What decoding token by token needs to know of a sentencepiece model and the library's public
// headers do not tell. Read from the model file itself, a protocol-buffers message.
#pragma once

#include <string>
#include <string_view>

namespace transnormer {

struct SentencePieceSpec {
  // normalizer_spec: what encoding does to spaces, and decoding undoes at the start of a text.
  bool add_dummy_prefix = true;
  bool remove_extra_whitespaces = true;
  // trainer_spec: the text of an unknown token.
  std::string unknown_surface = " \xE2\x81\x87 ";
};

// Missing fields keep their defaults, as the format has it. The message was accepted by the library
// before, so a field that cannot be read ends the reading.
[[nodiscard]] SentencePieceSpec read_sentencepiece_spec(std::string_view model);

}  // namespace transnormer
