// export: a checkpoint's model for Python.
#include <iostream>
#include <memory>
#include <string>

#include "checkpoint/checkpoint.h"
#include "cli/commands.h"
#include "cli/options.h"
#include "export/export.h"
#include "ops/runtime/device.h"
#include "task/objective.h"
#include "util/signal.h"

namespace transnormer::cli {
namespace {

struct ExportRequest {
  std::string checkpoint;
  std::string out;
  bool ema = false;
};

ExitStatus run_export(const ExportRequest& request) {
  install_signal_handlers();
  const Checkpoint checkpoint = Checkpoint::open(request.checkpoint);
  const std::string& learned = checkpoint.config().train.objective;
  if (!objective(learned).continues_text()) {
    throw UserError(checkpoint.path().string() + ": learned \"" + learned +
                    "\" (train.objective); only models that continue text are exported");
  }
  const Weights weights = request.ema ? Weights::ema : Weights::trained;
  std::cout << export_checkpoint(checkpoint, weights, request.out).string() << '\n';
  return ExitStatus::done;
}

}  // namespace

void add_export(CLI::App& app, Run& run) {
  CLI::App* command =
      app.add_subcommand("export", "A checkpoint's model for PyTorch and transformers");
  auto request = std::make_shared<ExportRequest>();
  add_path(*command, "CHECKPOINT", request->checkpoint, "A checkpoint, or a run directory")
      ->required();
  add_path(*command, "--out", request->out,
           "The directory of the export: new, or that of an older one")
      ->required();
  command->add_flag("--ema", request->ema,
                    "The running mean of the weights (optimizer.ema) instead of them");
  command->callback([request, &run] { run = [request] { return run_export(*request); }; });
}

}  // namespace transnormer::cli
