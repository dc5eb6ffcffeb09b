#include "ops/runtime/operator_choices.h"

#include <cstdlib>
#include <sstream>
#include <string>
#include <utility>

#include "util/error.h"

namespace transnormer::ops {
namespace {

OperatorChoices from_environment() {
  const char* value = std::getenv("TRANSNORMER_OPERATORS");
  std::istringstream words(value == nullptr ? "" : value);
  OperatorChoices choices;
  for (std::string word; std::getline(words, word, ',');) {
    if (word == "plain") {
      choices.kernels = false;
    } else if (word == "launched") {
      choices.graphs = false;
    } else if (word == "dense-rows") {
      choices.row_pitch = Use::never;
    } else if (word == "own-attention") {
      choices.fused_attention = Use::never;
    } else {
      throw UserError(
          "TRANSNORMER_OPERATORS: expected \"plain\", \"launched\", \"dense-rows\" or "
          "\"own-attention\", or some of them separated by commas, got \"" +
          word + "\"");
    }
  }
  return choices;
}

OperatorChoices& current() {
  static OperatorChoices choices = from_environment();
  return choices;
}

}  // namespace

const OperatorChoices& operator_choices() {
  return current();
}

ChoicesGuard::ChoicesGuard(const OperatorChoices& choices)
    : former_(std::exchange(current(), choices)) {}

ChoicesGuard::~ChoicesGuard() {
  current() = former_;
}

}  // namespace transnormer::ops
