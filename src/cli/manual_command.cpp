// manual: the manual page, made from the options that there are.
#include <iostream>
#include <string>
#include <string_view>

#include "cli/command_tree.h"
#include "cli/commands.h"
#include "util/version.h"

namespace transnormer::cli {
namespace {

// Text of a page: no request at the start of a line, no escape but those meant.
std::string escaped(std::string_view text) {
  std::string safe;
  for (const char c : text) {
    if (c == '\\') {
      safe += "\\e";
    } else if (c == '-') {
      safe += "\\-";
    } else {
      safe += c;
    }
  }
  return safe.starts_with('.') || safe.starts_with('\'') ? "\\&" + safe : safe;
}

std::string paragraph_of(const OptionEntry& option) {
  std::string text = ".TP\n";
  for (const std::string& name : option.names) {
    text += (&name == &option.names.front() ? "" : ", ") + ("\\fB" + escaped(name) + "\\fR");
  }
  const bool by_place = !option.names.front().starts_with('-');
  if (!option.value.empty() && (!by_place || !option.choices.empty())) {
    text += " \\fI" + escaped(option.value) + "\\fR";
  }
  text += '\n' + escaped(option.help);
  if (!option.otherwise.empty()) {
    text += " (" + escaped(option.otherwise) + " unless told)";
  }
  return text + ".\n";
}

std::string synopsis_of(const CommandEntry& command) {
  std::string text = "\\fBtransnormer " + escaped(command.words) + "\\fR";
  for (const OptionEntry& option : command.options) {
    if (option.is_required) {
      text += " \\fB" + escaped(option.names.back()) + "\\fR \\fI" + escaped(option.value) + "\\fR";
    }
  }
  text += " [\\fIoptions\\fR]";
  for (const OptionEntry& argument : command.arguments) {
    const std::string name = "\\fI" + escaped(argument.names.front()) + "\\fR";
    text += argument.is_required ? " " + name : " [" + name + "]";
  }
  return text + '\n';
}

bool is_help(const OptionEntry& option) {
  return option.names.back() == "--help";
}

std::string section_of(const CommandEntry& command) {
  std::string text = ".SS transnormer " + escaped(command.words) + "\n" + escaped(command.help) +
                     ".\n.PP\n" + synopsis_of(command);
  for (const auto* entries : {&command.arguments, &command.options}) {
    for (const OptionEntry& option : *entries) {
      text += is_help(option) ? "" : paragraph_of(option);
    }
  }
  return text;
}

constexpr const char* kAfter = R"(.SH CONFIG
JSON, comments allowed. Every key has a default.
\fBtransnormer config show\fR \fICONFIG\fR prints each key with its value and origin,
\fBtransnormer config schema \-\-markdown\fR what each one means. Any key can be set on the command
line by \fB\-\-set\fR \fIKEY\fR=\fIVALUE\fR.
.SH EXIT STATUS
.TP
\fB0\fR
Done.
.TP
\fB1\fR
A fault of the program.
.TP
\fB2\fR
A fault of the user's: option, config, data, checkpoint, permission or space. One line for each.
.TP
\fB3\fR
The training diverged.
.TP
\fB4\fR
Finished, but a save or a record of the log failed on the way.
.TP
\fB130\fR, \fB143\fR
Stopped by SIGINT or SIGTERM, after saving.
.SH SIGNALS
While it trains, SIGINT and SIGTERM save and stop, a second SIGINT stops at once, and SIGUSR1 saves
and goes on.
.SH ENVIRONMENT
.TP
\fBCUDA_VISIBLE_DEVICES\fR
Which of several GPUs are used.
.TP
\fBNO_COLOR\fR
No colours in messages. With \fBTERM\fR=dumb there is no progress bar either.
.TP
\fBOMP_WAIT_POLICY\fR
"passive": threads that wait for each other leave the core to other programs.
.SH FILES
.TP
\fIruns/NAME\fR
The run directory: \fIconfig.json\fR, \fItrain.log\fR, \fImetrics.jsonl\fR, \fItensorboard\fR,
\fIcheckpoints\fR.
.TP
\fIruns/cache\fR
Tokenised text (\fBdata.cache_dir\fR).
.SH EXAMPLES
.nf
transnormer train configs/mine.json \-\-set optimizer.lr=1e\-3
transnormer eval runs/mine \-\-json
transnormer generate runs/mine \-\-prompt "In the beginning" \-\-max\-tokens 50
.fi
)";

std::string manual_page(const CommandEntry& program) {
  std::string text = ".TH TRANSNORMER 1 \"\" \"transnormer " + escaped(program_version()) +
                     "\" \"User Commands\"\n.SH NAME\ntransnormer \\- " +
                     "trains, evaluates and "
                     "compares linear\\-attention language models\n.SH SYNOPSIS\n"
                     "\\fBtransnormer\\fR \\fICOMMAND\\fR [\\fIoptions\\fR]\n.SH DESCRIPTION\n" +
                     escaped(program.help) +
                     "\nAnswers go to standard output, with \\fB\\-\\-json\\fR one JSON object and "
                     "nothing else; log and progress go to standard error.\n.SH COMMANDS\n";
  for (const CommandEntry& command : flattened(program)) {
    if (!command.words.empty() && command.commands.empty()) {
      text += section_of(command);
    }
  }
  return text + kAfter;
}

}  // namespace

void add_manual(CLI::App& app, Run& run) {
  CLI::App* command =
      app.add_subcommand("manual", "The manual page: transnormer manual | man -l -");
  command->callback([&app, &run] {
    run = [&app] {
      std::cout << manual_page(command_tree(app));
      return ExitStatus::done;
    };
  });
}

}  // namespace transnormer::cli
