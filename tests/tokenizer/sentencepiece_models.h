// Small models for tests, trained on a text of ours with settings that public models have.
#pragma once

#include <sentencepiece_trainer.h>

#include <array>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <unordered_map>
#include <vector>

#include "tokenizer/sentencepiece_log.h"

namespace transnormer::test {

// 300 lines of words made of syllables: a few characters, many words.
inline std::vector<std::string> small_text() {
  std::vector<std::string> lines;
  std::uint32_t state = 1;
  const auto below = [&state](std::uint32_t limit) {
    state = state * 1664525U + 1013904223U;
    return (state >> 16) % limit;
  };
  const std::array<const char*, 16> syllables{"the", "old", "cat", "ri",  "ver", "mo", "ning", "ta",
                                              "lo",  "sun", "ed",  "ing", "ber", "12", "tree", "s"};
  for (int i = 0; i < 300; ++i) {
    std::string line = "the cat";
    for (std::uint32_t word = 0; word < 8; ++word) {
      line += below(9) == 0 ? "  " : " ";
      for (std::uint32_t part = 0; part <= below(3); ++part) {
        line += syllables[below(below(2) == 0 ? 4 : 16)];
      }
    }
    lines.push_back(line + ".");
  }
  return lines;
}

inline std::string library_model(std::unordered_map<std::string, std::string> settings) {
  class Lines final : public sentencepiece::SentenceIterator {
   public:
    bool done() const override { return at_ == lines_.size(); }
    void Next() override { ++at_; }
    const std::string& value() const override { return lines_[at_]; }
    sentencepiece::util::Status status() const override { return {}; }

   private:
    std::vector<std::string> lines_ = small_text();
    std::size_t at_ = 0;
  };
  silence_sentencepiece();
  Lines lines;
  std::string model;
  const auto status = sentencepiece::SentencePieceTrainer::Train(settings, &lines, &model);
  if (!status.ok()) {
    throw std::runtime_error(status.ToString());
  }
  return model;
}

}  // namespace transnormer::test
