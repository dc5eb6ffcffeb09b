// Commands whose code has not landed yet.
#include "cli/commands.h"

namespace transnormer::cli {
void add_train(CLI::App&, Run&) {}
void add_prepare(CLI::App&, Run&) {}
void add_tokenizer(CLI::App&, Run&) {}
}  // namespace transnormer::cli
