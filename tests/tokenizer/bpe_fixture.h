// The small vocabulary of tests/tokenizer/bpe (scripts/make_bpe_fixture.py), and what its tests
// share.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/tokenizer.h"
#include "util/error.h"
#include "util/file.h"

namespace transnormer::test {

inline std::filesystem::path bpe_file(const std::string& name) {
  return std::filesystem::path(TRANSNORMER_SOURCE_DIR "/tests/tokenizer/bpe") / name;
}

inline std::shared_ptr<const Tokenizer> small_bpe() {
  return load_tokenizer(bpe_file("small.tiktoken"));
}

inline std::vector<TokenId> encoded(const Tokenizer& tokenizer, std::string_view text) {
  std::vector<TokenId> ids;
  tokenizer.encode_line(text, ids);
  return ids;
}

}  // namespace transnormer::test
