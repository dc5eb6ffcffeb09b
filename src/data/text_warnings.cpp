#include "data/text_warnings.h"

#include "log/console.h"
#include "tokenizer/utf8.h"
#include "util/units.h"

namespace transnormer {
namespace {

std::string count_of(std::int64_t count, const std::string& what) {
  return format_count(count) + ' ' + what + (count == 1 ? "" : "s");
}

// As it can be printed: what is no character or controls a terminal becomes '?'.
std::string shown(std::string_view word) {
  std::string text;
  while (!word.empty()) {
    const Utf8Step step = utf8_step(word);
    const bool prints = step.kind == Utf8Step::Kind::character &&
                        (step.size > 1 || (word.front() >= ' ' && word.front() != '\x7F'));
    text += prints ? word.substr(0, step.size) : std::string_view("?");
    word.remove_prefix(step.size);
  }
  return '"' + text + '"';
}

}  // namespace

void warn_of_findings(const std::string& name, const TextSource& source,
                      const TextFindings& findings) {
  if (findings.carriage_returns > 0) {
    log::warn(name + ": holds " + count_of(findings.carriage_returns, "carriage return") +
              (source.strip_cr ? " before no line feed; they stay in the text"
                               : "; lines end at line feeds only, so they stay in the text; "
                                 "data.strip_cr=true drops those before line feeds"));
  }
  if (findings.invalid_bytes > 0) {
    const auto file = static_cast<std::size_t>(findings.invalid_file);
    const std::string place =
        (file < source.files.size() ? text_name(source.files[file]) + ", " : "") + "line " +
        format_count(findings.invalid_line);
    log::warn(name + ": holds " + count_of(findings.invalid_bytes, "byte") +
              " of no UTF-8 character, the first in " + place +
              "; convert the text to UTF-8, for instance with iconv");
  }
}

void warn_of_text(const std::string& name, const TextSource& source, const SplitCounts& counts) {
  warn_of_findings(name, source, counts.findings);
  constexpr double kMany = 0.05;
  const double share = static_cast<double>(counts.unknown) / static_cast<double>(counts.tokens);
  if (counts.tokens == 0 || share <= kMany) {
    return;
  }
  std::string words;
  for (const UnknownWord& unknown : counts.common_unknown) {
    words += (words.empty() ? "; the commonest: " : ", ") + shown(unknown.word) + ' ' +
             format_count(unknown.count);
  }
  log::warn(name + ": " + format_fixed(100 * share, 1) + "% of its tokens are unknown (" +
            format_count(counts.unknown) + " of " + format_count(counts.tokens) + ')' + words);
}

}  // namespace transnormer
