// The config as a flat list of keys, for everything that goes through them one by one: comparing,
// writing, documenting, and finding the key that was meant.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "config/config.h"
#include "config/load.h"

namespace transnormer {

struct FieldRow {
  std::string key;       // dotted
  std::string value;     // as JSON
  std::string expected;  // in words
  std::string unit;
  std::string help;
  std::string alternative;  // whose setting this is in a union of several, else empty
  OnResume on_resume;
  bool is_tag = false;                    // the name of a union's alternative
  std::vector<std::string> choices = {};  // where there are few values, as they are spelled
};

// Every key of `config` with its value, in declared order.
[[nodiscard]] std::vector<FieldRow> list_fields(const Config& config);

// Every key there can be with its default, the settings of every alternative among them.
[[nodiscard]] std::vector<FieldRow> list_all_fields();

// The keys of the settings that a union holds, as they stand beside its name.
[[nodiscard]] std::vector<std::string> setting_keys(UnionValue value);

// The row of a dotted key, or null.
[[nodiscard]] const FieldRow* find_row(const std::vector<FieldRow>& rows, const std::string& key);

// The one of `names` that `word` was probably meant to be, if any is near.
[[nodiscard]] std::optional<std::string> nearest(const std::string& word,
                                                 const std::vector<std::string>& names);

// The dotted keys that are called this: in all, by other trainers (config/aliases.h), or in their
// last part ("lr"), in declared order. "-" may stand for "_".
[[nodiscard]] std::vector<std::string> keys_named(std::string word);

// Where no key is called so, those whose last part is spelled nearly so.
[[nodiscard]] std::vector<std::string> keys_nearly_named(const std::string& word);

// What may help where a choice was `written` that is none: "; did you mean .."; may be empty.
[[nodiscard]] std::string hint_of_choice(const std::string& written,
                                         const std::vector<std::string>& names);

// "model.heds: unknown key; did you mean "model.heads" (an integer ..)?". `section` is dotted,
// empty at the top; `chosen` is the union whose settings the section holds, else null.
[[nodiscard]] std::string describe_unknown_key(const std::string& section, const std::string& key,
                                               const UnionValue* chosen);

}  // namespace transnormer
