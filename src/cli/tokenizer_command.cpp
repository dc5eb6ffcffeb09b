// tokenizer: makes tokenizer files, and turns text into ids and back.
#include <algorithm>
#include <array>
#include <charconv>
#include <iostream>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "cli/commands.h"
#include "cli/options.h"
#include "config/load.h"
#include "data/make_tokenizer.h"
#include "log/console.h"
#include "tokenizer/plain_text.h"
#include "tokenizer/tokenizer.h"
#include "util/file.h"
#include "util/signal.h"
#include "util/units.h"

namespace transnormer::cli {
namespace {

struct TrainRequest {
  std::string config;
  std::string out;
  std::vector<std::string> sets;
};

bool is_tokenizer(const InputFile& file) {
  try {
    return file.size() <= kLargestWholeFile && parse_tokenizer(file.text(), "") != nullptr;
  } catch (const UserError&) {
    return false;
  }
}

ExitStatus run_tokenizer_train(const TrainRequest& request) {
  install_signal_handlers();
  const LoadedConfig loaded =
      reported(load_config(request.config, request.sets), ConfigReader::tokenizer);
  require_replaceable("--out", request.out, "a tokenizer", is_tokenizer);
  FileWriter out(request.out);
  const std::string bytes = make_tokenizer(loaded.config, true);
  out.write(bytes.data(), bytes.size());
  out.finish();
  log::info(request.out + ": " + format_count(parse_tokenizer(bytes, request.out)->size()) +
            " tokens");
  return ExitStatus::done;
}

// The lines of standard input, less a byte order mark before the first. Lines end at '\n' only; the
// last may lack it. There is no next one where nobody takes the answer.
class InputLines {
 public:
  bool next(std::string& line) {
    if (!std::cout || !std::getline(std::cin, line)) {
      return false;
    }
    if (number_++ == 0) {
      line.erase(0, line.size() - without_byte_order_mark(line).size());
    }
    return true;
  }
  [[nodiscard]] std::int64_t number() const { return number_; }  // of the last line, from 1

 private:
  std::int64_t number_ = 0;
};

ExitStatus run_encode(const std::string& path) {
  const auto tokenizer = load_tokenizer(path);
  InputLines lines;
  std::string line;
  std::vector<TokenId> ids;
  std::string answer;
  while (lines.next(line)) {
    ids.clear();
    tokenizer->encode_line(line, ids);
    answer.clear();
    for (const TokenId id : ids) {
      std::array<char, 16> digits;
      const auto [end, error] = std::to_chars(digits.data(), digits.data() + digits.size(), id);
      answer.append(answer.empty() ? "" : " ").append(digits.data(), end);
    }
    std::cout << answer << '\n';
  }
  return ExitStatus::done;
}

std::vector<TokenId> parse_ids(std::string_view line, std::int64_t number, std::int64_t size) {
  std::vector<TokenId> ids;
  while (true) {
    line.remove_prefix(std::min(line.find_first_not_of(" \t\r"), line.size()));
    if (line.empty()) {
      return ids;
    }
    const std::string_view word = line.substr(0, line.find_first_of(" \t\r"));
    std::int64_t id = -1;
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), id);
    if (error != std::errc() || end != word.data() + word.size() || id < 0 || id >= size) {
      throw UserError("standard input: line " + std::to_string(number) + ": \"" +
                      std::string(word.substr(0, 40)) + "\" is no token id; expected 0 to " +
                      std::to_string(size - 1));
    }
    ids.push_back(static_cast<TokenId>(id));
    line.remove_prefix(word.size());
  }
}

ExitStatus run_decode(const std::string& path) {
  const auto tokenizer = load_tokenizer(path);
  InputLines lines;
  std::string line;
  while (lines.next(line)) {
    std::cout << tokenizer->decode(parse_ids(line, lines.number(), tokenizer->size())) << '\n';
  }
  return ExitStatus::done;
}

void add_tokenizer_train(CLI::App& group, Run& run) {
  CLI::App* command = group.add_subcommand(
      "train", "Make the tokenizer that a config describes from its training text");
  auto request = std::make_shared<TrainRequest>();
  add_path(*command, "CONFIG", request->config, "A config file")->required();
  add_path(*command, "--out", request->out, "The file to write")->required();
  add_sets(*command, request->sets);
  command->callback([request, &run] { run = [request] { return run_tokenizer_train(*request); }; });
}

void add_filter(CLI::App& group, Run& run, const std::string& name, const std::string& help,
                ExitStatus (*filter)(const std::string&)) {
  CLI::App* command = group.add_subcommand(name, help);
  auto path = std::make_shared<std::string>();
  add_path(*command, "PATH", *path, "A dictionary, a sentencepiece model or a BPE vocabulary")
      ->required();
  command->callback([path, filter, &run] { run = [path, filter] { return filter(*path); }; });
}

}  // namespace

void add_tokenizer(CLI::App& app, Run& run) {
  CLI::App* group = app.add_subcommand("tokenizer", "Make tokenizers; text to ids and back");
  group->require_subcommand(1);
  add_tokenizer_train(*group, run);
  add_filter(*group, run, "encode", "Lines of text from stdin to lines of ids on stdout",
             run_encode);
  add_filter(*group, run, "decode", "Lines of ids from stdin to lines of text on stdout",
             run_decode);
}

}  // namespace transnormer::cli
