// Every key of the config, declared once: name, default (the struct's own), range or choices, unit,
// a line of help, and what a resume may do with it. Whatever handles all keys (reading, writing,
// `--set`, schema, documentation, comparison) is a FieldVisitor; none of them names a key.
//
// A virtual interface rather than a generic lambda: the declarations are compiled once, in
// fields.cpp, and a new visitor costs its own lines only.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "config/config.h"
#include "config/load.h"
#include "config/names.h"

namespace transnormer {

struct Field {
  const char* key;
  const char* help;  // one line
  OnResume on_resume = OnResume::refuse;
  const char* unit = "";
};

// Both ends belong to the range.
struct IntegerRange {
  std::int64_t min = 0;
  std::int64_t max = std::numeric_limits<std::int64_t>::max();
};

// The ends belong to the range unless open.
struct NumberRange {
  double min = 0;
  double max = std::numeric_limits<double>::infinity();
  bool min_open = false;
  bool max_open = false;
};

// What a string stands for: a name must serve as the name of a directory.
enum class TextKind { name, file, directory };

// One of a few spellings: which it is now, and how to change it.
struct Choice {
  std::vector<const char*> names;
  std::size_t current;
  std::function<void(std::size_t)> select;
};

class FieldVisitor {
 public:
  virtual ~FieldVisitor() = default;

  virtual void flag(const Field& field, bool& value) = 0;
  virtual void integer(const Field& field, std::int64_t& value, const IntegerRange& range) = 0;
  virtual void number(const Field& field, double& value, const NumberRange& range) = 0;
  virtual void number_pair(const Field& field, std::array<double, 2>& value,
                           const NumberRange& range) = 0;
  virtual void text(const Field& field, std::string& value, TextKind kind) = 0;
  virtual void paths(const Field& field, std::vector<std::string>& value) = 0;
  // A list of texts that are no paths.
  virtual void texts(const Field& field, std::vector<std::string>& value) = 0;
  virtual void choice(const Field& field, const Choice& value) = 0;
  // A union told apart by the key `tag`; its settings stand beside that key in the same section.
  virtual void alternatives(const Field& tag, UnionValue& value) = 0;
  // `body` visits the fields inside.
  virtual void section(const Field& field, const std::function<void()>& body) = 0;
};

// A field that is an enum, spelled as in its table of names.
template <class E, std::size_t N>
void visit_choice(FieldVisitor& visitor, const Field& field, E& value,
                  const std::array<Named<E>, N>& names) {
  Choice spelled{
      .names = {}, .current = 0, .select = [&](std::size_t i) { value = names[i].value; }};
  for (std::size_t i = 0; i < N; ++i) {
    spelled.names.push_back(names[i].name);
    if (names[i].value == value) {
      spelled.current = i;
    }
  }
  visitor.choice(field, spelled);
}

// Sizes that a tensor can have, and counts that a run can reach. Whether the memory suffices is
// judged where it is known.
inline constexpr std::int64_t kMaxSize = 2147483647;
inline constexpr std::int64_t kMaxCount = 1'000'000'000'000'000;
inline constexpr NumberRange kProbability{.min = 0, .max = 1, .max_open = true};

// Visits every key in declared order.
void visit_fields(Config& config, FieldVisitor& visitor);

// False for what is not finite, too.
[[nodiscard]] bool contains(const NumberRange& range, double value);

// What a value must be, in words: "an integer from 1 to 8", `one of "pre", "post"`.
[[nodiscard]] std::string describe(const IntegerRange& range);
[[nodiscard]] std::string describe(const NumberRange& range, const char* noun = "a number");
[[nodiscard]] std::string describe(const std::vector<const char*>& choices);
[[nodiscard]] std::string describe(TextKind kind);

// How a text must be spelled to be a name or a path ("in UTF-8"); empty if it is.
[[nodiscard]] std::string misspelled(const std::string& text, TextKind kind);

}  // namespace transnormer
