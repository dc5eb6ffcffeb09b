#include "tokenizer/bpe_files.h"

#include <algorithm>
#include <system_error>
#include <utility>
#include <vector>

#include "config/json_tree.h"
#include "log/console.h"
#include "tokenizer/plain_text.h"
#include "tokenizer/tiktoken_file.h"
#include "tokenizer/tokenizer_json.h"
#include "util/error.h"
#include "util/file.h"

namespace transnormer {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kMergesStart = "#version:";
constexpr std::string_view kVocabName = "vocab.json";
constexpr std::string_view kMergesName = "merges.txt";

// A file's bytes and what it is called in messages.
struct Named {
  std::string bytes;
  std::string name;
};

JsonNode parse(const std::string& bytes, const std::string& name) {
  std::vector<Fault> faults;
  JsonNode root = parse_json(bytes, name, faults);
  if (!faults.empty()) {
    throw UserError(name + ": line " + std::to_string(faults.front().line) + ": " +
                    faults.front().message);
  }
  return root;
}

// The file that belongs to this one: "x-vocab.json" and "x-merges.txt".
Named companion(const std::string& name, const std::optional<fs::path>& directory,
                std::string_view own, std::string_view wanted) {
  std::string file = fs::path(name).filename().string();
  file =
      (file.ends_with(own) ? file.substr(0, file.size() - own.size()) : "") + std::string(wanted);
  std::error_code error;
  if (!directory || !fs::exists(*directory / file, error)) {
    throw UserError(name + ": is half of a BPE vocabulary: " + file +
                    " is missing beside it; put both into one directory");
  }
  const fs::path path = *directory / file;
  return {read_file(path), path.string()};
}

// Of a file that does not tell how its model cuts texts.
BpeVocabulary as_gpt2(BpeVocabulary vocabulary, const std::string& name) {
  constexpr std::size_t kGpt2Tokens = 50257;
  if (vocabulary.tokens.size() > kGpt2Tokens) {
    log::warn(name +
              ": has more tokens than GPT-2's vocabulary; texts are cut by GPT-2's pattern, "
              "so ids may differ from those of the model that it is of");
  }
  return vocabulary;
}

BpeVocabulary read_vocab_and_merges(const JsonNode& vocab, const std::string& vocab_name,
                                    const Named& merges) {
  BpeVocabularyBuilder builder(vocab_name);
  add_vocabulary(vocab, vocab_name, {}, builder);
  builder.end_tokens();
  std::string_view rest = merges.bytes;
  for (std::int64_t number = 1; !rest.empty(); ++number) {
    const std::string_view line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(line.size() + 1, rest.size()));
    const bool is_header = number == 1 && line.starts_with(kMergesStart);
    if (!is_header && !line.empty()) {
      add_merge_line(line, merges.name + ": line " + std::to_string(number), builder);
    }
  }
  return builder.finish();
}

bool starts_json(std::string_view bytes) {
  const std::string_view text = without_byte_order_mark(bytes);
  const std::size_t first = text.find_first_not_of(" \t\r\n");
  if (first == std::string_view::npos || text[first] != '{') {
    return false;
  }
  // A dictionary may list a word that starts so: then digits alone follow its space.
  const std::string_view line = text.substr(0, text.find('\n'));
  const std::size_t space = line.find(' ');
  return space == std::string_view::npos || space + 1 == line.size() ||
         line.find_first_not_of("0123456789", space + 1) != std::string_view::npos;
}

}  // namespace

bool is_bpe_file(std::string_view bytes) {
  return bytes.starts_with(kMergesStart) || starts_json(bytes) || starts_tiktoken(bytes);
}

BpeVocabulary read_bpe(const std::string& bytes, const std::string& name,
                       const std::optional<fs::path>& directory) {
  if (starts_tiktoken(bytes)) {
    return as_gpt2(read_tiktoken(bytes, name), name);
  }
  if (bytes.starts_with(kMergesStart)) {
    const Named vocab = companion(name, directory, kMergesName, kVocabName);
    return as_gpt2(read_vocab_and_merges(parse(vocab.bytes, vocab.name), vocab.name, {bytes, name}),
                   vocab.name);
  }
  const JsonNode root = parse(std::string(without_byte_order_mark(bytes)), name);
  const JsonNode* model = root.find("model");
  if (model != nullptr && model->kind == JsonNode::Kind::object) {
    return read_tokenizer_json(root, name);
  }
  const bool is_vocab = std::ranges::all_of(
      root.items, [](const JsonNode& item) { return item.kind == JsonNode::Kind::integer; });
  if (root.kind != JsonNode::Kind::object || root.items.empty() || !is_vocab) {
    throw UserError(name +
                    ": is JSON, but no tokenizer: neither a tokenizer.json, which has a \"model\", "
                    "nor a vocab.json, which gives each token a number");
  }
  return as_gpt2(
      read_vocab_and_merges(root, name, companion(name, directory, kVocabName, kMergesName)), name);
}

BpeVocabulary read_bpe_directory(const fs::path& directory) {
  for (const std::string_view file : {std::string_view("tokenizer.json"), kVocabName}) {
    const fs::path path = directory / file;
    std::error_code error;
    if (fs::exists(path, error)) {
      return read_bpe(read_file(path), path.string(), directory);
    }
  }
  throw UserError(directory.string() +
                  ": is a directory without a tokenizer; expected vocab.json and merges.txt in it, "
                  "or tokenizer.json");
}

}  // namespace transnormer
