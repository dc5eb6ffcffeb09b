// Unions of settings told apart by a name: the attention of a layer, the optimizer. What they hold
// is declared where it is used, in layers above this one, and added to a family when the program
// starts; reading, writing, `--set`, schema, documentation and comparison need not know it.
//
// Types are erased rather than listed in a std::variant, which would have to know every alternative
// here, below the code that gives it its meaning.
#pragma once

#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace transnormer {

class FieldVisitor;

class Settings {
 public:
  virtual ~Settings() = default;
  virtual void visit(FieldVisitor& visitor) = 0;
  [[nodiscard]] virtual std::unique_ptr<Settings> clone() const = 0;
  [[nodiscard]] virtual bool equals(const Settings& other) const = 0;
};

// Of a plain struct that has
//   static constexpr const char* kName, kHelp;    as files spell it, and one line of help
//   void visit(FieldVisitor& visitor);            each setting once (config/fields.h)
//   bool operator==(const S&) const = default;
template <class S>
class SettingsOf final : public Settings {
 public:
  explicit SettingsOf(S settings = {}) : value(std::move(settings)) {}
  void visit(FieldVisitor& visitor) override { value.visit(visitor); }
  [[nodiscard]] std::unique_ptr<Settings> clone() const override {
    return std::make_unique<SettingsOf>(value);
  }
  [[nodiscard]] bool equals(const Settings& other) const override {
    const auto* same = dynamic_cast<const SettingsOf*>(&other);
    return same != nullptr && same->value == value;
  }

  S value;
};

struct Alternative {
  std::string name;
  std::string help;
  std::shared_ptr<const Settings> defaults;
};

// The alternatives of one union, by name: the order in which files of the program add theirs is the
// linker's. Not to be added to while another thread reads it.
class Alternatives {
 public:
  // `noun` stands in messages: "attention".
  explicit Alternatives(const char* noun) : noun_(noun) {}

  // A name can be added once.
  void add(Alternative alternative);

  [[nodiscard]] const std::string& noun() const { return noun_; }
  [[nodiscard]] const std::vector<std::shared_ptr<const Alternative>>& all() const { return all_; }
  [[nodiscard]] std::vector<const char*> names() const;
  // Null if there is none.
  [[nodiscard]] const Alternative* find(const std::string& name) const;

 private:
  std::string noun_;
  std::vector<std::shared_ptr<const Alternative>> all_;
};

// The families. What they hold is added by the files of model/attention/ and optim/.
[[nodiscard]] Alternatives& attentions();
// Those of them that may be a part of another one.
[[nodiscard]] Alternatives& attention_parts();
[[nodiscard]] Alternatives& optimizers();

// Adds S; true, so that it can initialise a variable before main().
template <class S>
bool add_alternative(Alternatives& family) {
  family.add({S::kName, S::kHelp, std::make_shared<SettingsOf<S>>()});
  return true;
}

// One of the alternatives with its settings. A value that only has its name takes the default
// settings when they are first asked for, so that a Config can be made where those who declare them
// are not linked. Asking for settings that nobody declared throws std::logic_error.
class UnionValue {
 public:
  UnionValue(const Alternatives& alternatives, std::string name)
      : alternatives_(&alternatives), name_(std::move(name)) {}
  UnionValue(const Alternatives& alternatives, std::string name, std::unique_ptr<Settings> settings)
      : alternatives_(&alternatives), name_(std::move(name)), own_(std::move(settings)) {}
  UnionValue(const UnionValue& other);
  UnionValue(UnionValue&&) noexcept = default;
  UnionValue& operator=(const UnionValue& other);
  UnionValue& operator=(UnionValue&&) noexcept = default;
  ~UnionValue() = default;

  [[nodiscard]] const std::string& name() const { return name_; }
  [[nodiscard]] const Alternatives& alternatives() const { return *alternatives_; }

  // Another alternative starts from its own defaults; the present one keeps its settings.
  void select(const std::string& name);

  // Visits the settings, not the name.
  void visit(FieldVisitor& visitor) { own().visit(visitor); }

  template <class S>
  [[nodiscard]] bool holds() const {
    return name_ == S::kName;
  }
  // The settings; std::logic_error where another alternative is held.
  template <class S>
  [[nodiscard]] const S& get() const {
    return cast<const SettingsOf<S>>(settings()).value;
  }
  template <class S>
  [[nodiscard]] S& get() {
    return cast<SettingsOf<S>>(own()).value;
  }

  friend bool operator==(const UnionValue& a, const UnionValue& b);

 private:
  template <class T, class From>
  T& cast(From& settings) const {
    if (T* held = dynamic_cast<T*>(&settings)) {
      return *held;
    }
    throw std::logic_error("settings of another " + alternatives_->noun() + " than \"" + name_ +
                           "\" were asked for");
  }
  [[nodiscard]] const Settings& settings() const;
  [[nodiscard]] Settings& own();

  const Alternatives* alternatives_;
  std::string name_;
  std::unique_ptr<Settings> own_;  // null: the defaults
};

// A UnionValue of one family, made of a name or of the settings themselves.
template <Alternatives& (*kFamily)()>
class UnionOf : public UnionValue {
 public:
  UnionOf(const char* name) : UnionValue(kFamily(), name) {}  // NOLINT: implicit as a literal is
  template <class S>
  requires requires { S::kName; }
  UnionOf(S settings)  // NOLINT: implicit, as into a std::variant
      : UnionValue(kFamily(), S::kName, std::make_unique<SettingsOf<S>>(std::move(settings))) {}
};

}  // namespace transnormer
