#include "config/listing.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "config/aliases.h"
#include "config/fields.h"
#include "config/json_tree.h"

namespace transnormer {
namespace {

// Which settings of a union of several.
enum class Shown { present, all, none };

class Lister : public FieldVisitor {
 public:
  explicit Lister(Shown shown) : shown_(shown) {}
  [[nodiscard]] std::vector<FieldRow> take() { return std::move(rows_); }
  // The unions of several that were met, one of each family that adds what others have not.
  [[nodiscard]] const std::vector<UnionValue>& unions() const { return unions_; }

  void flag(const Field& field, bool& value) override {
    add(field, value, "true or false");
    rows_.back().choices = {"true", "false"};
  }
  void integer(const Field& field, std::int64_t& value, const IntegerRange& range) override {
    add(field, value, describe(range));
  }
  void number(const Field& field, double& value, const NumberRange& range) override {
    add(field, value, describe(range));
  }
  void number_pair(const Field& field, std::array<double, 2>& value,
                   const NumberRange& range) override {
    add(field, value, "a list of two numbers, each " + describe(range, ""));
  }
  void text(const Field& field, std::string& value, TextKind kind) override {
    add(field, value, describe(kind));
  }
  void paths(const Field& field, std::vector<std::string>& value) override {
    add(field, value, "a path, a glob or a list of them");
  }
  void texts(const Field& field, std::vector<std::string>& value) override {
    add(field, value, "a text or a list of them");
  }
  void choice(const Field& field, const Choice& value) override {
    add(field, value.names[value.current], describe(value.names));
    rows_.back().choices.assign(value.names.begin(), value.names.end());
  }
  void section(const Field& field, const std::function<void()>& body) override {
    const std::string outer = std::exchange(prefix_, prefix_ + field.key + ".");
    body();
    prefix_ = outer;
  }
  void alternatives(const Field& tag, UnionValue& value) override {
    add(tag, value.name(), describe(value.alternatives().names()));
    rows_.back().is_tag = true;
    const std::vector<const char*> names = value.alternatives().names();
    rows_.back().choices.assign(names.begin(), names.end());
    const std::string outer = alternative_;
    const bool of_several = value.alternatives().all().size() > 1;
    if (of_several && std::none_of(unions_.begin(), unions_.end(), [&](const UnionValue& met) {
          return met.alternatives().noun() == value.alternatives().noun();
        })) {
      unions_.push_back(value);
    }
    for (const auto& alternative : value.alternatives().all()) {
      if ((shown_ == Shown::present && alternative->name != value.name()) ||
          (shown_ == Shown::none && of_several)) {
        continue;
      }
      if (of_several) {
        alternative_ = alternative->name;
      }
      UnionValue shown = value;
      shown.select(alternative->name);
      shown.visit(*this);
    }
    alternative_ = outer;
  }

 private:
  template <class T>
  void add(const Field& field, const T& value, std::string expected) {
    rows_.push_back({prefix_ + field.key,
                     nlohmann::json(value).dump(),
                     std::move(expected),
                     field.unit,
                     field.help,
                     alternative_,
                     field.on_resume,
                     false,
                     {}});
  }

  Shown shown_;
  std::vector<UnionValue> unions_;
  std::vector<FieldRow> rows_;
  std::string prefix_;
  std::string alternative_;
};

std::vector<FieldRow> rows_of(Config config, Shown shown) {
  Lister lister(shown);
  visit_fields(config, lister);
  return lister.take();
}

// How many letters must be put in, left out, changed or swapped with a neighbour.
std::size_t edit_distance(const std::string& a, const std::string& b) {
  std::vector<std::vector<std::size_t>> d(a.size() + 1, std::vector<std::size_t>(b.size() + 1));
  for (std::size_t i = 0; i <= a.size(); ++i) {
    for (std::size_t j = 0; j <= b.size(); ++j) {
      if (i == 0 || j == 0) {
        d[i][j] = i + j;
        continue;
      }
      d[i][j] = std::min(
          {d[i - 1][j] + 1, d[i][j - 1] + 1, d[i - 1][j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1)});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        d[i][j] = std::min(d[i][j], d[i - 2][j - 2] + 1);
      }
    }
  }
  return d[a.size()][b.size()];
}

std::string lower_case(std::string word) {
  for (char& c : word) {
    c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  }
  return word;
}

std::string last_part(const std::string& key) {
  return key.substr(key.rfind('.') + 1);
}

std::string join(const std::string& section, const std::string& key) {
  return section.empty() ? key : section + "." + key;
}

// The keys and sections directly inside a section.
std::vector<std::string> children(const std::string& section, const std::vector<FieldRow>& rows) {
  std::vector<std::string> found;
  const std::string prefix = section.empty() ? "" : section + ".";
  if (section.empty()) {
    found.emplace_back("include");
  }
  for (const FieldRow& row : rows) {
    if (row.key.starts_with(prefix)) {
      const std::string child =
          row.key.substr(prefix.size(), row.key.find('.', prefix.size()) - prefix.size());
      if (std::find(found.begin(), found.end(), child) == found.end()) {
        found.push_back(child);
      }
    }
  }
  return found;
}

std::string quoted_list(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) {
    text += (text.empty() ? "\"" : ", \"") + name + "\"";
  }
  return text;
}

// Where keys of this name stand in other sections, or what other trainers mean by it.
std::vector<std::string> elsewhere(const std::string& key, const std::vector<FieldRow>& rows) {
  std::vector<std::string> keys;
  for (const FieldRow& row : rows) {
    const bool is_new = std::find(keys.begin(), keys.end(), row.key) == keys.end();
    if (last_part(row.key) == key && is_new) {
      keys.push_back(row.key);
    }
  }
  return keys.empty() ? keys_called(key) : keys;
}

// The key of a section that other trainers call so.
std::optional<std::string> called_in(const std::string& section, const std::string& word) {
  for (const std::string& key : keys_called(word)) {
    if (key == join(section, last_part(key))) {
      return key;
    }
  }
  return std::nullopt;
}

// `"a", "b" or "c"`, of at most three.
std::string alternatives_of(const std::vector<std::string>& keys) {
  constexpr std::size_t kMost = 3;
  const std::size_t shown = std::min(keys.size(), kMost);
  std::string text;
  for (std::size_t i = 0; i < shown; ++i) {
    text += i == 0 ? "" : i + 1 == shown ? " or " : ", ";
    text += "\"" + keys[i] + "\"";
  }
  return text;
}

}  // namespace

std::vector<FieldRow> list_fields(const Config& config) {
  return rows_of(config, Shown::present);
}

std::vector<FieldRow> list_all_fields() {
  return rows_of(Config{}, Shown::all);
}

std::vector<std::string> setting_keys(UnionValue value) {
  Lister lister(Shown::present);
  value.visit(lister);
  std::vector<std::string> keys;
  for (FieldRow& row : lister.take()) {
    keys.push_back(std::move(row.key));
  }
  return keys;
}

namespace {

// "default | values | meaning |" of a row of a table.
std::string described(const FieldRow& row) {
  const std::string unit = row.unit.empty() ? "" : " (" + row.unit + ")";
  return "`" + row.value + "` | " + row.expected + unit + " | " + row.help + " |\n";
}

// The settings of every alternative of a union.
std::string settings_reference(const UnionValue& value) {
  const std::string& noun = value.alternatives().noun();
  std::string text = "\n### Settings of each " + noun + "\n\nThey stand beside its name.\n\n| " +
                     noun + " | key | default | values | meaning |\n|---|---|---|---|---|\n";
  for (const auto& alternative : value.alternatives().all()) {
    text += "| `" + alternative->name + "` | | | | " + alternative->help + " |\n";
    UnionValue shown = value;
    shown.select(alternative->name);
    Lister lister(Shown::none);
    shown.visit(lister);
    for (const FieldRow& row : lister.take()) {
      text += "| | `" + row.key + "` | " + described(row);
    }
  }
  return text;
}

}  // namespace

std::string config_reference() {
  std::string text;
  std::string section = "-";
  Config config;
  Lister lister(Shown::none);
  visit_fields(config, lister);
  const std::vector<UnionValue> unions = lister.unions();
  for (const FieldRow& row : lister.take()) {
    const std::size_t dot = row.key.find('.');
    const std::string here = dot == std::string::npos ? "" : row.key.substr(0, dot);
    if (here != section) {
      section = here;
      text += "\n### " + (here.empty() ? "Top level" : "`" + here + "`") + "\n\n";
      text += "| key | default | values | meaning |\n|---|---|---|---|\n";
    }
    text += "| `" + row.key.substr(here.empty() ? 0 : here.size() + 1) + "` | " + described(row);
  }
  for (const UnionValue& value : unions) {
    text += settings_reference(value);
  }
  return text.substr(1);
}

const FieldRow* find_row(const std::vector<FieldRow>& rows, const std::string& key) {
  const auto row = std::find_if(rows.begin(), rows.end(),
                                [&](const FieldRow& candidate) { return candidate.key == key; });
  return row == rows.end() ? nullptr : &*row;
}

std::optional<std::string> nearest(const std::string& written,
                                   const std::vector<std::string>& names) {
  const std::string word = lower_case(written);
  constexpr std::size_t kLongest = 64;  // of a key that someone may have meant
  if (word.empty() || word.size() > kLongest) {
    return std::nullopt;
  }
  std::optional<std::string> best;
  std::size_t best_distance = 0;
  for (const std::string& name : names) {
    const std::size_t distance = edit_distance(word, name);
    const std::size_t allowed = std::max<std::size_t>(1, std::max(word.size(), name.size()) / 3);
    // "batch_size" for "global_batch_size", "learning_rate_init" for a part of it
    const bool contained =
        std::min(word.size(), name.size()) >= 3 &&
        (name.find(word) != std::string::npos || word.find(name) != std::string::npos);
    if (distance > allowed && !contained) {
      continue;
    }
    if (!best || distance < best_distance) {
      best = name;
      best_distance = distance;
    }
  }
  return best;
}

std::vector<std::string> keys_named(std::string word) {
  std::replace(word.begin(), word.end(), '-', '_');
  if (const std::vector<std::string> called = keys_called(word); !called.empty()) {
    return called;
  }
  std::vector<std::string> keys;
  for (const FieldRow& row : list_all_fields()) {
    const bool is_new = keys.empty() || keys.back() != row.key;  // alternatives share keys
    if ((row.key == word || last_part(row.key) == word) && is_new) {
      keys.push_back(row.key);
    }
  }
  return keys;
}

std::vector<std::string> keys_nearly_named(const std::string& word) {
  std::string written = word;
  std::replace(written.begin(), written.end(), '-', '_');
  constexpr std::size_t kLettersAFault = 4;
  std::size_t least = written.size() / kLettersAFault;
  std::string near;
  for (const FieldRow& row : list_all_fields()) {
    const std::string name = last_part(row.key);
    const std::size_t longest = std::max(written.size(), name.size());
    if (longest - std::min(written.size(), name.size()) > least) {
      continue;
    }
    if (const std::size_t distance = edit_distance(written, name);
        distance < least || (distance == least && near.empty())) {
      least = distance;
      near = name;
    }
  }
  return near.empty() ? std::vector<std::string>{} : keys_named(near);
}

std::string hint_of_choice(const std::string& written, const std::vector<std::string>& names) {
  // As PyTorch names one of several GPUs.
  constexpr std::string_view kNumbered = "cuda:";
  const bool has_cuda = std::find(names.begin(), names.end(), "cuda") != names.end();
  if (has_cuda && written.starts_with(kNumbered)) {
    return "; to use that GPU set CUDA_VISIBLE_DEVICES=" +
           printable(written.substr(kNumbered.size()), false) + " in the environment, and \"cuda\"";
  }
  if (has_cuda && written == "gpu") {
    return "; did you mean \"cuda\"?";
  }
  const std::optional<std::string> name = nearest(written, names);
  return name ? "; did you mean \"" + *name + "\"?" : "";
}

std::string describe_unknown_key(const std::string& section, const std::string& key,
                                 const UnionValue* chosen) {
  const std::vector<FieldRow> all = list_all_fields();
  std::vector<FieldRow> rows = all;
  std::string what = join(section, printable(key, key.empty())) + ": unknown key";
  for (const FieldRow& row : all) {
    if (row.key == join(section, key) && key.find('.') != std::string::npos) {
      return what + "; expected it nested, as \"" + key.substr(0, key.find('.')) + "\": {..}";
    }
  }
  const bool one_of_several = chosen != nullptr && chosen->alternatives().all().size() > 1;
  if (one_of_several) {
    what += " for the " + chosen->alternatives().noun() + " \"" + chosen->name() + "\"";
    std::erase_if(rows, [&](const FieldRow& row) {
      return !row.alternative.empty() &&
             !(row.is_tag && row.key == join(section, last_part(row.key)));
    });
  }
  std::vector<std::string> known = children(section, rows);
  for (const std::string& own :
       one_of_several ? setting_keys(*chosen) : std::vector<std::string>{}) {
    const std::string child = own.substr(0, own.find('.'));
    if (std::find(known.begin(), known.end(), child) == known.end()) {
      known.push_back(child);
    }
  }
  std::vector<std::string> meant;
  if (const std::optional<std::string> called = called_in(section, key)) {
    meant = {*called};
  } else if (const std::optional<std::string> near = nearest(key, known)) {
    meant = {join(section, *near)};
  } else {
    // The settings of others, here or in another union, are not meant.
    meant = elsewhere(key, rows);
  }
  if (meant.empty()) {
    return what + "; expected one of " + quoted_list(known);
  }
  what += "; did you mean " + alternatives_of(meant);
  for (const FieldRow& row : all) {
    if (meant.size() == 1 && row.key == meant.front()) {
      return what + " (" + row.expected + ")?";
    }
  }
  return what + "?";
}

}  // namespace transnormer
