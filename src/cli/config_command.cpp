// config: shows what a config resolves to, checks it, and describes all there is to set.
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "cli/commands.h"
#include "cli/options.h"
#include "config/load.h"
#include "model/attention/registry.h"

namespace transnormer::cli {
namespace {

struct ConfigRequest {
  std::string file;
  std::vector<std::string> sets;
  bool json = false;
  bool markdown = false;
};

// Without a file, the defaults.
LoadedConfig load(const ConfigRequest& request) {
  return reported(request.file.empty() ? parse_config("{}", "default", request.sets)
                                       : load_config(request.file, request.sets),
                  ConfigReader::all);
}

ExitStatus show(const ConfigRequest& request) {
  const LoadedConfig loaded = load(request);
  std::cout << (request.json ? config_to_json(loaded.config) : config_with_origins(loaded));
  return ExitStatus::done;
}

ExitStatus check(const ConfigRequest& request) {
  const Config config = load(request).config;
  const std::vector<std::string> faults =
      unfit_attentions(config.model, {.max_positions = config.data.tokens_per_sample});
  if (!faults.empty()) {
    throw UserError(faults);
  }
  std::cout << "ok: " << (request.file.empty() ? "defaults" : request.file) << '\n';
  return ExitStatus::done;
}

// The same for every config; one that is named is checked, as a reader of the answer may expect.
ExitStatus schema(const ConfigRequest& request) {
  static_cast<void>(load(request));
  std::cout << (request.markdown ? config_reference() : config_schema());
  return ExitStatus::done;
}

ExitStatus list_attentions(const ConfigRequest& request) {
  static_cast<void>(load(request));
  std::cout << attention_table();
  return ExitStatus::done;
}

using Action = ExitStatus (*)(const ConfigRequest&);

CLI::App& add_action(CLI::App& parent, Run& run, const std::shared_ptr<ConfigRequest>& request,
                     const char* name, const char* help, Action action) {
  CLI::App* command = parent.add_subcommand(name, help);
  add_path(*command, "config", request->file, "Config file; without one, the defaults")
      ->type_name("CONFIG");
  add_sets(*command, request->sets);
  command->callback(
      [&run, request, action] { run = [request, action] { return action(*request); }; });
  return *command;
}

}  // namespace

void add_config(CLI::App& app, Run& run) {
  CLI::App* command = app.add_subcommand("config", "Show, check and document configs");
  command->require_subcommand(1);
  const auto request = std::make_shared<ConfigRequest>();
  add_action(*command, run, request, "show", "The resolved config with the origin of each value",
             show)
      .add_flag("--json", request->json, "The resolved config only, as plain JSON");
  add_action(*command, run, request, "check", "Every fault of a config, or ok", check);
  add_action(*command, run, request, "schema", "JSON Schema of a config, for editors", schema)
      .add_flag("--markdown", request->markdown, "Tables of every key instead");
  add_action(*command, run, request, "attentions",
             "A table of the attentions that a config can name", list_attentions);
}

}  // namespace transnormer::cli
