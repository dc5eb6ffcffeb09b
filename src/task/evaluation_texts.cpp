#include "task/evaluation_texts.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "config/load.h"
#include "data/text_input.h"
#include "util/error.h"

namespace transnormer {
namespace {

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
    note_read_once(request);
  }
  return texts_.emplace(key, requested_text(request)).first->second;
}

void EvaluationTexts::note_read_once(const EvaluationRequest& request) {
  const DataConfig& data = request.config.data;
  const Reading now{request.tokenizer->digest(), data.line_end, data.strip_cr};
  const auto [place, is_first] = read_once_.try_emplace(request.text, now);
  if (is_first) {
    return;
  }
  const Reading& before = place->second;
  std::string differ;
  for (const auto& [differs, name] :
       {std::pair(now.tokenizer != before.tokenizer, "tokenizer"),
        std::pair(now.line_end != before.line_end, "data.line_end"),
        std::pair(now.strip_cr != before.strip_cr, "data.strip_cr")}) {
    if (differs) {
      differ += (differ.empty() ? "" : ", ") + std::string(name);
    }
  }
  throw UserError("--text " + request.text +
                  ": can be read only once, and these checkpoints read it in several ways (" +
                  differ + "); give the text as a file");
}

}  // namespace transnormer
