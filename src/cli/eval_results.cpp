#include "cli/eval_results.h"

#include <algorithm>
#include <cmath>
#include <iostream>
#include <nlohmann/json.hpp>
#include <utility>

#include "log/console.h"
#include "tokenizer/utf8.h"
#include "util/units.h"

namespace transnormer::cli {
namespace {

using Json = nlohmann::ordered_json;
using Figure = Evaluation::Figure;

constexpr std::size_t kFigureWidth = 17;

// Of one line on the screen.
std::size_t width_of(const std::string& text) {
  return static_cast<std::size_t>(
      std::ranges::count_if(text, [](char c) { return !continues_character(c); }));
}

std::string left(const std::string& text, std::size_t width) {
  return text + std::string(width - std::min(width, width_of(text)), ' ');
}

std::string right(const std::string& text, std::size_t width) {
  return std::string(width - std::min(width, width_of(text)), ' ') + text;
}

// File names may hold any bytes.
void print_json(const Json& answer) {
  std::cout << answer.dump(2, ' ', false, Json::error_handler_t::replace) << '\n';
}

Json named_answer(const Result& result) {
  Json answer = {{"checkpoint", result.name.checkpoint}, {"text", result.name.text}};
  if (result.name.is_split) {
    answer["split"] = result.name.text;
  }
  answer.update(*result.evaluation.answer);
  return answer;
}

void print_figures(const Evaluation& evaluation) {
  for (const auto& [name, value, meaning] : evaluation.table) {
    std::cout << name << std::string(22 - name.size(), ' ')
              << std::string(14 - std::min<std::size_t>(value.size(), 14), ' ') << value << "  "
              << meaning << '\n';
  }
  std::cout << "\nProtocol: " << evaluation.protocol << ".\n";
}

std::string in_a_line(const Result& result) {
  std::string line = result.name.checkpoint + " on " + result.name.text + ":";
  for (const Figure& figure : result.evaluation.figures) {
    line += "  " + figure.name + " " + figure.shown;
  }
  return line;
}

template <typename Of>
std::size_t widest(const std::vector<ResultName>& names, const std::string& title, const Of& of) {
  std::size_t width = width_of(title);
  for (const ResultName& name : names) {
    width = std::max(width, width_of(of(name)));
  }
  return width;
}

std::string given(const ResultName& name) {
  return name.given;
}
std::string step(const ResultName& name) {
  return format_count(name.step);
}
std::string text(const ResultName& name) {
  return name.text;
}

std::vector<Result> of_same_text(const std::vector<Result>& results, const Result& one) {
  std::vector<Result> same;
  std::ranges::copy_if(results, std::back_inserter(same),
                       [&one](const Result& other) { return other.name.text == one.name.text; });
  return same;
}

const Figure* find(const Result& result, const std::string& name) {
  const auto& figures = result.evaluation.figures;
  const auto found = std::ranges::find(figures, name, &Figure::name);
  return found == figures.end() ? nullptr : &*found;
}

bool is_best(const Figure& figure, const std::vector<Result>& of_text) {
  return of_text.size() > 1 && !figure.basis.empty() &&
         std::ranges::all_of(of_text, [&figure](const Result& other) {
           const Figure* const its = find(other, figure.name);
           return its != nullptr && its->basis == figure.basis && figure.value <= its->value;
         });
}

// Each name once, in the order in which they first come.
std::vector<std::string> columns(const std::vector<Result>& results) {
  std::vector<std::string> names;
  for (const Result& result : results) {
    for (const Figure& figure : result.evaluation.figures) {
      if (std::ranges::find(names, figure.name) == names.end()) {
        names.push_back(figure.name);
      }
    }
  }
  return names;
}

std::string row(const std::vector<std::string>& cells) {
  std::string line = "|";
  for (const std::string& text : cells) {
    line += ' ';
    for (const char c : text) {
      line += c == '|' ? "\\|" : c == '\n' ? " " : std::string(1, c);
    }
    line += " |";
  }
  return line + '\n';
}

}  // namespace

ResultName name_of(const Scoring& scoring, const EvalOptions& options) {
  const Checkpoint& checkpoint = scoring.subject.checkpoint;
  const bool is_split = scoring.text.empty();
  return {.given = scoring.subject.given,
          .checkpoint = checkpoint.path().string(),
          .step = checkpoint.state().step,
          .text = is_split ? to_string(options.split) : scoring.text,
          .is_split = is_split};
}

Results::Results(AnswerForm form, std::vector<ResultName> names)
    : form_(form), names_(std::move(names)) {}

void Results::add(const Result& result) {
  if (!is_single() && form_ == AnswerForm::people) {
    print_line(result);
  } else if (!is_single()) {
    log::info(in_a_line(result));
  }
  results_.push_back(result);
}

void Results::print_line(const Result& result) const {
  const std::size_t of_given = widest(names_, "checkpoint", given);
  const std::size_t of_step = widest(names_, "step", step);
  const std::size_t of_text = widest(names_, "text", text);
  if (results_.empty()) {
    std::cout << left("checkpoint", of_given) << "  " << right("step", of_step) << "  "
              << left("text", of_text);
    for (const Figure& figure : result.evaluation.figures) {
      std::cout << "  " << right(figure.name, kFigureWidth);
    }
    std::cout << '\n';
  }
  std::cout << left(given(result.name), of_given) << "  " << right(step(result.name), of_step)
            << "  " << left(text(result.name), of_text);
  for (const Figure& figure : result.evaluation.figures) {
    std::cout << "  " << right(figure.shown, kFigureWidth);
  }
  std::cout << std::endl;
}

void Results::finish() const {
  if (form_ == AnswerForm::markdown) {
    std::cout << markdown_table(results_);
  } else if (form_ == AnswerForm::people && is_single()) {
    print_figures(results_.front().evaluation);
  } else if (form_ == AnswerForm::json && is_single()) {
    print_json(*results_.front().evaluation.answer);
  } else if (form_ == AnswerForm::json) {
    Json answer = {{"results", Json::array()}};
    std::ranges::transform(results_, std::back_inserter(answer["results"]), named_answer);
    print_json(answer);
  }
}

std::string markdown_table(const std::vector<Result>& results) {
  const std::vector<std::string> names = columns(results);
  std::vector<std::string> heads{"checkpoint", "step", "text"};
  heads.insert(heads.end(), names.begin(), names.end());
  std::string rule = "|---|---:|---|";
  for (std::size_t i = 0; i < names.size(); ++i) {
    rule += "---:|";
  }
  std::string table = row(heads) + rule + '\n';
  for (const Result& result : results) {
    const std::vector<Result> of_text = of_same_text(results, result);
    std::vector<std::string> cells{given(result.name), step(result.name), text(result.name)};
    for (const std::string& name : names) {
      const Figure* const figure = find(result, name);
      std::string shown = figure == nullptr ? "" : figure->shown;
      if (figure != nullptr && is_best(*figure, of_text)) {
        shown.insert(0, "**").append("**");
      }
      cells.push_back(std::move(shown));
    }
    table += row(cells);
  }
  return table;
}

}  // namespace transnormer::cli
