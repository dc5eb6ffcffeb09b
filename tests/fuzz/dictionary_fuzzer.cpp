// A dictionary of words, and text that is read by it: the dictionary itself.
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "fuzz/fuzzer.h"
#include "tokenizer/tokenizer.h"

namespace {

namespace fuzz = transnormer::fuzz;
using transnormer::TokenId;
using transnormer::Tokenizer;

void check(const Tokenizer& tokenizer, std::string_view bytes) {
  fuzz::require(tokenizer.serialized() == bytes, "a dictionary is kept as it is");
  std::vector<TokenId> ids;
  while (!bytes.empty()) {
    const std::string_view line = bytes.substr(0, bytes.find('\n'));
    tokenizer.encode_line(line, ids);
    bytes.remove_prefix(std::min(line.size() + 1, bytes.size()));
  }
  for (const TokenId id : ids) {
    fuzz::require(id >= 0 && id < tokenizer.size(), "an id is one of the dictionary");
  }
  const std::string text = tokenizer.decode(ids);
  fuzz::require(text.empty() == ids.empty(), "ids give text");
  // An entry that no line of the dictionary has.
  static_cast<void>(tokenizer.decode(std::vector{static_cast<TokenId>(tokenizer.size())}));
}

}  // namespace

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string bytes(fuzz::bytes_of(data, size));
  const auto type = transnormer::tokenizer_type(bytes);
  if (type.value_or(transnormer::TokenizerType::word) != transnormer::TokenizerType::word) {
    return 0;  // the sentencepiece library's to read, or bpe_fuzzer's
  }
  std::shared_ptr<const Tokenizer> tokenizer;
  if (fuzz::reads([&] { tokenizer = transnormer::parse_tokenizer(bytes, "dictionary"); })) {
    check(*tokenizer, bytes);
  }
  return 0;
}
