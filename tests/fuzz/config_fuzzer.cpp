// A config, what it includes, and `--set`. The input is in parts, with a byte 0x1E between them:
// the file, a file "included.json" beside it, then a `--set` each.
#include <string>
#include <string_view>
#include <vector>

#include "config/load.h"
#include "fuzz/fuzzer.h"
#include "tokenizer/word_dictionary.h"

namespace {

namespace fuzz = transnormer::fuzz;
using transnormer::Config;
using transnormer::LoadedConfig;

std::vector<std::string> parts_of(std::string_view bytes) {
  constexpr char kSeparator = 0x1E;
  std::vector<std::string> parts{""};
  for (const char byte : bytes) {
    if (byte == kSeparator) {
      parts.emplace_back();
    } else {
      parts.back() += byte;
    }
  }
  return parts;
}

// What is written of a sound config is the same config.
void check_written(const LoadedConfig& loaded) {
  const Config again =
      transnormer::parse_config(transnormer::config_to_json(loaded.config), "written").config;
  fuzz::require(transnormer::config_changes(loaded.config, again).empty(),
                "a config that is written is read as the same");
  const Config shown =
      transnormer::parse_config(transnormer::config_with_origins(loaded), "shown").config;
  fuzz::require(transnormer::config_changes(loaded.config, shown).empty(),
                "a config that is shown is read as the same");
}

}  // namespace

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::vector<std::string> parts = parts_of(fuzz::bytes_of(data, size));
  const auto file = fuzz::put("config.json", parts.front());
  fuzz::put("included.json", parts.size() > 1 ? parts[1] : "{}");
  const std::vector<std::string> sets(parts.size() > 2 ? parts.begin() + 2 : parts.end(),
                                      parts.end());
  LoadedConfig loaded;
  if (fuzz::reads([&] { loaded = transnormer::load_config(file, sets); })) {
    check_written(loaded);
    fuzz::require(transnormer::made_vocab_size(loaded.config.tokenizer) >= 0,
                  "the size of a vocabulary is a count");
  }
  return 0;
}
