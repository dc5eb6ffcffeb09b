// The commands. Each adds its options to the program's command line; when the user chose it, `run`
// is set to the call that carries it out.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>

#include "util/error.h"

namespace transnormer::cli {

using Run = std::function<ExitStatus()>;

void add_train(CLI::App& app, Run& run);
void add_eval(CLI::App& app, Run& run);
void add_generate(CLI::App& app, Run& run);
void add_prepare(CLI::App& app, Run& run);
void add_tokenizer(CLI::App& app, Run& run);
void add_config(CLI::App& app, Run& run);
void add_inspect(CLI::App& app, Run& run);
void add_bench(CLI::App& app, Run& run);
void add_analyze(CLI::App& app, Run& run);
void add_average(CLI::App& app, Run& run);
void add_export(CLI::App& app, Run& run);
// These are made from the others, whenever they were added.
void add_completion(CLI::App& app, Run& run);
void add_manual(CLI::App& app, Run& run);

}  // namespace transnormer::cli
