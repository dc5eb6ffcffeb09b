#include "task/evaluation_texts.h"

#include <filesystem>
#include <nlohmann/json.hpp>
#include <system_error>
#include <utility>

#include "config/load.h"
#include "util/error.h"

namespace transnormer {
namespace {

namespace fs = std::filesystem;

// A pipe can be read once.
bool is_read_once(const std::string& text) {
  std::error_code none;
  return text == "-" || (fs::exists(text, none) && fs::is_other(text, none));
}

std::string key_of(const EvaluationRequest& request) {
  nlohmann::json key = {{"tokenizer", request.tokenizer->digest()}};
  const DataConfig& data = request.config.data;
  if (request.text.empty()) {
    Config only;  // all that a split can depend on
    only.data = data;
    only.train.threads = request.config.train.threads;
    key["split"] = to_string(request.split);
    key["config"] = config_to_json(only);
  } else {
    key["text"] = request.text;
    key["line_end"] = static_cast<int>(data.line_end);
    key["strip_cr"] = data.strip_cr;
  }
  return key.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace

PreparedSplit requested_text(const EvaluationRequest& request) {
  return request.text.empty()
             ? prepare_data(request.config, request.tokenizer, {.wanted = {request.split}})
                   .at(request.split)
             : tokenize_file(request.text, *request.tokenizer, request.config.data);
}

PreparedSplit EvaluationTexts::of(const EvaluationRequest& request) {
  const std::string key = key_of(request);
  if (const auto found = texts_.find(key); found != texts_.end()) {
    return found->second;
  }
  if (is_read_once(request.text)) {
    if (!read_once_.insert(request.text).second) {
      throw UserError("--text " + request.text +
                      ": can be read only once, and these checkpoints have several tokenizers; "
                      "give the text as a file");
    }
  }
  return texts_.emplace(key, requested_text(request)).first->second;
}

}  // namespace transnormer
