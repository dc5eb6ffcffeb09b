#include "cli/completion_script.h"

#include <algorithm>
#include <map>
#include <vector>

#include "config/listing.h"

namespace transnormer::cli {
namespace {

// What the tables say in place of words: the shell's own completion of files.
constexpr const char* kFiles = "@files";
constexpr const char* kKeys = "@keys";

std::string joined(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) {
    text += (text.empty() ? "" : " ") + word;
  }
  return text;
}

std::string line_of_case(const std::string& of, const std::string& words) {
  return "    '" + of + "') echo '" + words + "' ;;\n";
}

// A function of the shell that answers one of these lines by its argument.
std::string table(const std::string& name, const std::string& lines) {
  return name + "() {\n  case \"$1\" in\n" + lines + "  esac\n}\n";
}

std::vector<std::string> values_of(const OptionEntry& option) {
  std::vector<std::string> words = option.choices;
  if (option.takes_files) {
    words.emplace_back(kFiles);
  }
  if (option.takes_keys) {
    words.emplace_back(kKeys);
  }
  return words;
}

// What may be put in the place of each command: those inside it, else its first argument.
std::string first_words(const CommandEntry& command) {
  std::vector<std::string> words;
  for (const CommandEntry& inner : command.commands) {
    words.push_back(inner.words.substr(command.words.empty() ? 0 : command.words.size() + 1));
  }
  for (const OptionEntry& argument : command.arguments) {
    const std::vector<std::string> values = values_of(argument);
    words.insert(words.end(), values.begin(), values.end());
  }
  return joined(words);
}

// The same functions serve both shells.
std::string tables_of(const CommandEntry& program) {
  std::string words;
  std::string groups;
  std::string options;
  std::string values;
  for (const CommandEntry& command : flattened(program)) {
    words += line_of_case(command.words, first_words(command));
    if (!command.commands.empty() && !command.words.empty()) {
      groups += line_of_case(command.words, "group");
    }
    std::vector<std::string> names;
    for (const OptionEntry& option : command.options) {
      for (const std::string& name : option.names) {
        names.push_back(name);
        if (!option.value.empty()) {
          const std::vector<std::string> some = values_of(option);
          values += line_of_case(command.words + ' ' + name, some.empty() ? "@any" : joined(some));
        }
      }
    }
    options += line_of_case(command.words, joined(names));
  }
  std::vector<std::string> keys;
  std::map<std::string, std::vector<std::string>> choices;
  for (const FieldRow& row : list_all_fields()) {
    if (std::find(keys.begin(), keys.end(), row.key) == keys.end()) {
      keys.push_back(row.key);
    }
    std::vector<std::string>& known = choices[row.key];  // alternatives of a union share keys
    for (const std::string& choice : row.choices) {
      if (std::find(known.begin(), known.end(), choice) == known.end()) {
        known.push_back(choice);
      }
    }
  }
  std::string of_keys;
  for (const std::string& key : keys) {
    if (!choices[key].empty()) {
      of_keys += line_of_case(key, joined(choices[key]));
    }
  }
  return "# What follows a command, by the words that name it.\n" +
         table("_transnormer_words", words) + "# Commands that hold others.\n" +
         table("_transnormer_group", groups) + "# The options of each.\n" +
         table("_transnormer_options", options) +
         "# What stands behind an option; nothing behind a flag.\n" +
         table("_transnormer_values", values) + "# Keys of the config and their choices.\n" +
         "_transnormer_keys='" + joined(keys) + "'\n" + table("_transnormer_choices", of_keys);
}

constexpr const char* kBash = R"sh(
_transnormer_complete() {
  local line=${COMP_LINE:0:COMP_POINT} words=() command='' option='' current values i prefix=''
  read -ra words <<<"$line"
  [[ $line == *[[:space:]] ]] && words+=('')
  current=${words[-1]}
  for ((i = 1; i < ${#words[@]} - 1; ++i)); do
    if [[ -n $option ]]; then
      option=''
    elif [[ ${words[i]} == --*=* ]]; then
      :
    elif [[ ${words[i]} == -* ]]; then
      [[ -n $(_transnormer_values "$command ${words[i]}") ]] && option=${words[i]}
    elif [[ -z $command ]]; then
      command=${words[i]}
    elif [[ -n $(_transnormer_group "$command") ]]; then
      command+=" ${words[i]}"
    fi
  done
  if [[ -z $option && $current == --*=* ]]; then
    option=${current%%=*}
    prefix=$option=
    current=${current#*=}
  fi
  if [[ -n $option ]]; then
    values=$(_transnormer_values "$command $option")
  elif [[ $current == -* ]]; then
    values=$(_transnormer_options "$command")
  else
    values=$(_transnormer_words "$command")
  fi
  if [[ $values == @keys && $current == *=* ]]; then
    prefix+=${current%%=*}=
    values=$(_transnormer_choices "${current%%=*}")
    current=${current#*=}
    [[ -n $values ]] || values=@files
  elif [[ $values == @keys ]]; then
    COMPREPLY=($(compgen -W "$_transnormer_keys" -S = -- "$current"))
    compopt -o nospace 2>/dev/null
    return
  fi
  COMPREPLY=($(compgen -W "${values//@*/}" -- "$current"))
  if [[ $values == *@files* ]]; then
    local IFS=$'\n'
    COMPREPLY+=($(compgen -f -- "$current"))
    compopt -o filenames 2>/dev/null
  fi
  # Where "=" parts words, as it does unless told, only what stands behind it is replaced.
  if [[ -n $prefix && $COMP_WORDBREAKS != *=* ]]; then
    COMPREPLY=("${COMPREPLY[@]/#/$prefix}")
  fi
}
complete -F _transnormer_complete transnormer
)sh";

constexpr const char* kZsh = R"sh(
_transnormer() {
  local command='' option='' current=${words[CURRENT]} values word
  local -i i
  for ((i = 2; i < CURRENT; ++i)); do
    word=${words[i]}
    if [[ -n $option ]]; then
      option=''
    elif [[ $word == --*=* ]]; then
      :
    elif [[ $word == -* ]]; then
      [[ -n $(_transnormer_values "$command $word") ]] && option=$word
    elif [[ -z $command ]]; then
      command=$word
    elif [[ -n $(_transnormer_group "$command") ]]; then
      command+=" $word"
    fi
  done
  if [[ -z $option && $current == --*=* ]]; then
    option=${current%%=*}
    current=${current#*=}
    compset -P '*='
  fi
  if [[ -n $option ]]; then
    values=$(_transnormer_values "$command $option")
  elif [[ $current == -* ]]; then
    values=$(_transnormer_options "$command")
  else
    values=$(_transnormer_words "$command")
  fi
  if [[ $values == @keys && $current == *=* ]]; then
    values=$(_transnormer_choices "${current%%=*}")
    compset -P '*='
    [[ -n $values ]] || values=@files
  elif [[ $values == @keys ]]; then
    compadd -S = -- ${=_transnormer_keys}
    return
  fi
  [[ $values == *@files* ]] && _files
  values=${values//@*/}
  [[ -n $values ]] && compadd -- ${=values}
}
if [[ ${funcstack[1]} == _transnormer ]]; then
  _transnormer "$@"
elif (( $+functions[compdef] )); then
  compdef _transnormer transnormer
fi
)sh";

}  // namespace

std::string completion_script(Shell shell, const CommandEntry& program) {
  if (shell == Shell::bash) {
    return "# Completion of transnormer for bash; made by \"transnormer completion bash\".\n" +
           tables_of(program) + kBash;
  }
  return "#compdef transnormer\n# Completion for zsh; made by \"transnormer completion zsh\".\n" +
         tables_of(program) + kZsh;
}

}  // namespace transnormer::cli
