// Perplexity of a model on a text, as `eval` answers it.
#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <span>
#include <utility>

#include "eval/evaluate.h"
#include "log/progress.h"
#include "model/attention/registry.h"
#include "model/model_size.h"
#include "task/causal.h"
#include "task/evaluation_texts.h"
#include "util/error.h"
#include "util/file.h"
#include "util/signal.h"
#include "util/units.h"

namespace transnormer {
namespace {

// How many line ends the tokens of a text code: one a line, also where a file's last one lacks it;
// where they are kept, those that are there.
std::int64_t coded_line_ends(const PreparedSplit& text, LineEnd line_end,
                             const Tokenizer& tokenizer) {
  if (line_end != LineEnd::keep) {
    return line_end == LineEnd::eos ? text.counts.lines : 0;
  }
  std::vector<std::int64_t> of_token(static_cast<std::size_t>(tokenizer.size()));
  for (TokenId id = 0; id < tokenizer.size(); ++id) {
    of_token[static_cast<std::size_t>(id)] = std::ranges::count(tokenizer.decode({&id, 1}), '\n');
  }
  std::int64_t count = 0;
  text.stream.for_each(
      [&](TokenId token) { count += of_token.at(static_cast<std::size_t>(token)); });
  return count;
}

// Lines {"index", "id", "piece", "nll"} in stream order. The file appears when all are there.
class PerTokenFile {
 public:
  PerTokenFile(const std::string& path, const TokenStream& stream, const Tokenizer& tokenizer)
      : writer_(path), stream_(stream), tokenizer_(tokenizer) {}

  void write(std::int64_t first, std::span<const float> losses) {
    std::vector<std::int64_t> ids(losses.size());
    stream_.copy(first, std::ssize(ids), ids.data());
    std::string lines;
    for (std::size_t i = 0; i < losses.size(); ++i) {
      nlohmann::ordered_json line;
      line["index"] = first + static_cast<std::int64_t>(i);
      line["id"] = ids[i];
      line["piece"] = tokenizer_.piece(static_cast<TokenId>(ids[i]));
      line["nll"] = losses[i];
      lines += line.dump() + '\n';
    }
    writer_.write(lines.data(), lines.size());
  }
  void finish() { writer_.finish(); }

 private:
  FileWriter writer_;
  const TokenStream& stream_;
  const Tokenizer& tokenizer_;
};

struct Figures {
  EvaluateResult result;
  SplitCounts counts;
  double unigram_perplexity = 0;
  std::int64_t line_ends = 0;  // that are coded
  LineEnd line_end = LineEnd::eos;
  std::int64_t window = 0;
  std::int64_t context_window = 0;

  [[nodiscard]] double word_perplexity() const {
    const std::int64_t units = counts.words + line_ends;
    return std::exp(result.nll_sum / static_cast<double>(units));
  }
  // A code length of the bytes only where the tokens tell what they were.
  [[nodiscard]] double bits_per_byte() const {
    return counts.unreadable == Unreadable::no
               ? result.nll_sum / std::log(2.0) / static_cast<double>(counts.bytes)
               : std::numeric_limits<double>::quiet_NaN();
  }
  [[nodiscard]] std::string protocol() const {
    return "windows of " + std::to_string(window) + " tokens that advance by " +
           std::to_string(window - context_window) +
           ", positions start anew in each; every token is scored once, " +
           (line_end == LineEnd::none ? "line ends are not coded" : "line ends too");
  }
};

nlohmann::ordered_json answer_of(const Figures& figures) {
  const EvaluateResult& result = figures.result;
  nlohmann::ordered_json answer;
  answer["tokens"] = result.tokens;
  answer["nll"] = result.nll();
  answer["nll_stderr"] = result.nll_stderr();
  answer["token_perplexity"] = std::exp(result.nll());
  answer["words"] = figures.counts.words;
  answer["word_perplexity"] = figures.word_perplexity();
  answer["bytes"] = figures.counts.bytes;
  answer["bits_per_byte"] = figures.bits_per_byte();
  answer["unknown"] = figures.counts.unknown;
  answer["unigram_perplexity"] = figures.unigram_perplexity;
  answer["window"] = figures.window;
  answer["context_window"] = figures.context_window;
  answer["protocol"] = figures.protocol();
  return answer;
}

std::vector<Evaluation::Row> table_of(const Figures& figures) {
  const EvaluateResult& result = figures.result;
  const SplitCounts& counts = figures.counts;
  const bool readable = counts.unreadable == Unreadable::no;
  const bool has_line_ends = figures.line_end != LineEnd::none;
  return {
      {"token perplexity", format_fixed(std::exp(result.nll()), 3), "exp of the loss a token"},
      {"loss", format_fixed(result.nll(), 4),
       "nats a token, standard error " + format_fixed(result.nll_stderr(), 4)},
      {"word perplexity", format_fixed(figures.word_perplexity(), 3),
       "over " + format_count(counts.words) + " words" +
           (has_line_ends ? " and " + format_count(figures.line_ends) + " line ends" : "")},
      {"bits a byte", readable ? format_fixed(figures.bits_per_byte(), 4) : "-",
       readable ? "over " + format_count(counts.bytes) + " bytes"
                : std::string("not defined: ") + describe(counts.unreadable)},
      {"unigram perplexity", format_fixed(figures.unigram_perplexity, 3),
       "what training counts alone reach on the same tokens"},
      {"tokens", format_count(result.tokens), format_count(counts.unknown) + " of them unknown"}};
}

// Tokens compare where all tokens are the same, words and bytes with any tokenizer.
std::vector<Evaluation::Figure> columns_of(const Figures& figures, const std::string& digest) {
  const EvaluateResult& result = figures.result;
  const SplitCounts& counts = figures.counts;
  const double token_perplexity = std::exp(result.nll());
  const double word_perplexity = figures.word_perplexity();
  const double bits = figures.bits_per_byte();
  const bool readable = counts.unreadable == Unreadable::no;
  const std::string text = format_count(counts.words) + " words, " + format_count(counts.lines) +
                           " lines, " + format_count(counts.bytes) + " bytes";
  return {{"tokens", format_count(result.tokens), 0},
          {"nll", format_fixed(result.nll(), 4) + " ± " + format_fixed(result.nll_stderr(), 4),
           result.nll(), digest},
          {"token perplexity", format_fixed(token_perplexity, 3), token_perplexity, digest},
          {"word perplexity", format_fixed(word_perplexity, 3), word_perplexity,
           text + ", " + format_count(figures.line_ends) + " line ends"},
          {"bits a byte", readable ? format_fixed(bits, 4) : "-", bits, readable ? text : ""}};
}

class CausalEvaluator : public Evaluator {
 public:
  explicit CausalEvaluator(const EvaluationRequest& request)
      : request_(request),
        window_((request.window_is_set ? request.config : request.trained).data.tokens_per_sample),
        context_window_(request.context_window.value_or(request.config.validation.context_window)) {
    if (context_window_ < 0 || context_window_ >= window_) {
      throw UserError("the context window is " + std::to_string(context_window_) +
                      "; it must be at least 0 and below the window of " + std::to_string(window_) +
                      " tokens (data.tokens_per_sample)");
    }
    text_ = request.texts != nullptr ? request.texts->of(request) : requested_text(request);
    if (text_.stream.size() == 0) {
      throw UserError((request.text.empty() ? std::string("the split ") + to_string(request.split)
                                            : request.text) +
                      " holds no tokens to score");
    }
    require_that_windows_fit();
  }

  [[nodiscard]] std::string text_digest() const override { return text_.stream.digest(); }

  [[nodiscard]] std::optional<Evaluation> evaluate(TransNormer& model) const override {
    std::optional<PerTokenFile> per_token;
    if (!request_.per_item_file.empty()) {
      per_token.emplace(request_.per_item_file, text_.stream, *request_.tokenizer);
    }
    Figures figures;
    figures.result = run(model, per_token);
    if (!figures.result.complete) {
      return std::nullopt;
    }
    if (per_token) {
      per_token->finish();
    }
    figures.counts = text_.counts;
    figures.unigram_perplexity = std::exp(unigram_nll(text_.stream, request_.token_counts));
    figures.line_end = request_.config.data.line_end;
    figures.line_ends = coded_line_ends(text_, figures.line_end, *request_.tokenizer);
    figures.window = window_;
    figures.context_window = context_window_;
    return Evaluation{std::make_shared<nlohmann::ordered_json>(answer_of(figures)),
                      table_of(figures), figures.protocol(),
                      columns_of(figures, text_.stream.digest())};
  }

 private:
  // What could only be told once the model is there is told before anything is scored.
  void require_that_windows_fit() const {
    const Config& trained = request_.trained;
    const TransNormer model(trained.model, model_size(trained, request_.tokenizer.get()),
                            at::kMeta);
    const std::optional<std::int64_t> most = model.most_positions();
    const bool shares = request_.sequence.size() > 1;  // then every window is a whole one
    const std::int64_t longest = shares ? window_ : std::min(window_, text_.stream.size());
    if (most && longest > *most) {
      throw UserError("a window of " + format_count(longest) +
                      " tokens (data.tokens_per_sample) needs more positions than the model has, " +
                      format_count(*most));
    }
    const auto faults =
        unfit_for_sequence_parallel(trained.model, window_, request_.sequence.size());
    if (!faults.empty()) {
      throw UserError(faults);
    }
  }

  [[nodiscard]] EvaluateResult run(TransNormer& model,
                                   std::optional<PerTokenFile>& per_token) const {
    EvaluateOptions how;
    how.window = window_;
    how.context_window = context_window_;
    const std::int64_t asked = request_.config.validation.batch_size;
    how.batch_size = asked > 0 ? asked : windows_a_pass(model.device(), window_);
    how.compute = request_.compute;
    how.first_input = request_.tokenizer->first_input();
    how.should_stop = [] { return stop_requested().has_value(); };
    how.sequence = request_.sequence;
    how.batches = request_.batches;
    log::ProgressBar bar("eval", text_.stream.size());
    how.on_progress = [&bar](std::int64_t done) { bar.update(done); };
    if (per_token) {
      how.on_tokens = [&per_token](std::int64_t first, std::span<const float> losses) {
        per_token->write(first, losses);
      };
    }
    const EvaluateResult result = transnormer::evaluate(model, text_.stream, how);
    bar.finish();
    return result;
  }

  const EvaluationRequest& request_;
  std::int64_t window_;
  std::int64_t context_window_;
  PreparedSplit text_;
};

}  // namespace

std::unique_ptr<Evaluator> CausalObjective::make_evaluator(const EvaluationRequest& request) const {
  return std::make_unique<CausalEvaluator>(request);
}

}  // namespace transnormer
