// A BPE vocabulary in any of its files, and text that is read by it: the file itself. What stands
// behind a NUL is a merges.txt beside it.
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "fuzz/fuzzer.h"
#include "tokenizer/bpe_files.h"
#include "tokenizer/bpe_tokenizer.h"
#include "tokenizer/gpt2_pattern.h"

namespace {

namespace fuzz = transnormer::fuzz;
using transnormer::BpeTokenizer;
using transnormer::TokenId;

std::vector<TokenId> encoded(const BpeTokenizer& tokenizer, std::string_view text) {
  std::vector<TokenId> ids;
  tokenizer.encode_line(text, ids);
  for (const TokenId id : ids) {
    fuzz::require(id >= 0 && id < tokenizer.size(), "an id is one of the vocabulary");
  }
  return ids;
}

void check(const BpeTokenizer& tokenizer, std::string_view text) {
  const std::vector<TokenId> ids = encoded(tokenizer, text);
  fuzz::require(tokenizer.decode(ids) == text, "ids read as the bytes they were made of");
  if (const std::size_t cut = transnormer::last_gpt2_cut(text, 0); cut != std::string_view::npos) {
    std::vector<TokenId> parts = encoded(tokenizer, text.substr(0, cut));
    const std::vector<TokenId> behind = encoded(tokenizer, text.substr(cut));
    parts.insert(parts.end(), behind.begin(), behind.end());
    fuzz::require(parts == ids, "a place to cut changes no id");
  }
  const std::string& written = tokenizer.serialized();
  fuzz::require(transnormer::parse_tokenizer(written, "written")->serialized() == written,
                "what is written is read as it was");
}

}  // namespace

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view input = fuzz::bytes_of(data, size);
  const std::string_view file = input.substr(0, input.find('\0'));
  const std::string_view merges = input.substr(std::min(file.size() + 1, input.size()));
  const auto path = fuzz::put("merges.txt", merges);
  if (!transnormer::is_bpe_file(file)) {
    return 0;
  }
  std::unique_ptr<BpeTokenizer> tokenizer;
  if (fuzz::reads([&] {
        tokenizer = std::make_unique<BpeTokenizer>(
            transnormer::read_bpe(std::string(file), "vocab.json", path.parent_path()));
      })) {
    check(*tokenizer, input);
  }
  return 0;
}
