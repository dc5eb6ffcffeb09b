// Texts of evaluations.
#pragma once

#include <map>
#include <string>

#include "data/prepare.h"
#include "task/objective.h"

namespace transnormer {

// The text that a request asks for: a file, or a split. Throws UserError.
[[nodiscard]] PreparedSplit requested_text(const EvaluationRequest& request);

// Keeps them for several requests: each is read once for each tokenizer and way of reading.
// One that can be read only once, and is needed twice, is refused (UserError).
class EvaluationTexts {
 public:
  [[nodiscard]] PreparedSplit of(const EvaluationRequest& request);

 private:
  struct Reading {
    std::string tokenizer;  // its digest
    LineEnd line_end;
    bool strip_cr;
  };
  void note_read_once(const EvaluationRequest& request);

  std::map<std::string, PreparedSplit> texts_;  // by what they are made of
  std::map<std::string, Reading> read_once_;    // how each pipe was read
};

}  // namespace transnormer
