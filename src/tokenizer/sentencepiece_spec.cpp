#include "tokenizer/sentencepiece_spec.h"

#include <cstdint>
#include <optional>

namespace transnormer {
namespace {

// Field numbers of sentencepiece_model.proto.
constexpr std::uint64_t kTrainerSpec = 2;
constexpr std::uint64_t kNormalizerSpec = 3;
constexpr std::uint64_t kUnknownSurface = 44;
constexpr std::uint64_t kAddDummyPrefix = 3;
constexpr std::uint64_t kRemoveExtraWhitespaces = 4;

struct Field {
  std::uint64_t number = 0;
  std::uint64_t value = 0;  // of a varint
  std::string_view bytes;   // of a string or message
};

std::optional<std::uint64_t> take_varint(std::string_view& message) {
  std::uint64_t value = 0;
  for (unsigned shift = 0; shift < 64 && !message.empty(); shift += 7) {
    const auto byte = static_cast<unsigned char>(message.front());
    message.remove_prefix(1);
    value |= std::uint64_t{byte & 0x7FU} << shift;
    if (byte < 0x80) {
      return value;
    }
  }
  return std::nullopt;
}

std::optional<std::string_view> take_bytes(std::string_view& message, std::uint64_t size) {
  if (size > message.size()) {
    return std::nullopt;
  }
  const std::string_view bytes = message.substr(0, size);
  message.remove_prefix(size);
  return bytes;
}

// Takes the next field off the message; nothing at its end and where it is no message.
std::optional<Field> take_field(std::string_view& message) {
  enum : std::uint64_t { kVarint = 0, kEightBytes = 1, kSized = 2, kFourBytes = 5 };
  const std::optional<std::uint64_t> key = take_varint(message);
  if (!key) {
    return std::nullopt;
  }
  Field field;
  field.number = *key >> 3;
  std::optional<std::uint64_t> number;
  switch (*key & 7) {
    case kVarint:
      number = take_varint(message);
      field.value = number.value_or(0);
      return number ? std::optional(field) : std::nullopt;
    case kSized:
      number = take_varint(message);
      break;
    case kEightBytes:
      number = 8;
      break;
    case kFourBytes:
      number = 4;
      break;
    default:
      return std::nullopt;
  }
  const std::optional<std::string_view> bytes =
      number ? take_bytes(message, *number) : std::nullopt;
  field.bytes = bytes.value_or(std::string_view());
  return bytes ? std::optional(field) : std::nullopt;
}

void read_normalizer_spec(std::string_view message, SentencePieceSpec& spec) {
  while (const std::optional<Field> field = take_field(message)) {
    if (field->number == kAddDummyPrefix) {
      spec.add_dummy_prefix = field->value != 0;
    } else if (field->number == kRemoveExtraWhitespaces) {
      spec.remove_extra_whitespaces = field->value != 0;
    }
  }
}

void read_trainer_spec(std::string_view message, SentencePieceSpec& spec) {
  while (const std::optional<Field> field = take_field(message)) {
    if (field->number == kUnknownSurface) {
      spec.unknown_surface = field->bytes;
    }
  }
}

}  // namespace

SentencePieceSpec read_sentencepiece_spec(std::string_view model) {
  SentencePieceSpec spec;
  while (const std::optional<Field> field = take_field(model)) {
    if (field->number == kNormalizerSpec) {
      read_normalizer_spec(field->bytes, spec);
    } else if (field->number == kTrainerSpec) {
      read_trainer_spec(field->bytes, spec);
    }
  }
  return spec;
}

}  // namespace transnormer
