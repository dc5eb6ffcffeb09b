// What other trainers call our keys.
#pragma once

#include <string>
#include <vector>

namespace transnormer {

// The dotted keys that a word of another trainer's command line stands for ("batch_size"), the
// likeliest first; empty where it is none. "-" may stand for "_".
[[nodiscard]] std::vector<std::string> keys_called(std::string word);

// Every such word, with "_".
[[nodiscard]] std::vector<std::string> all_aliases();

}  // namespace transnormer
