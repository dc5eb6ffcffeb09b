#include "analyze/settings.h"

#include <stdexcept>
#include <utility>

#include "config/fields.h"

namespace transnormer {
namespace {

// Reads the setting of one key, and changes it where a new value is given.
class OneSetting final : public FieldVisitor {
 public:
  explicit OneSetting(std::string key) : key_(std::move(key)) {}

  std::optional<bool> new_flag;
  std::optional<std::string> new_choice;
  std::optional<bool> found_flag;
  std::optional<std::string> found_choice;

  void flag(const Field& field, bool& value) override {
    if (field.key == key_) {
      found_flag = value;
      value = new_flag.value_or(value);
    }
  }
  void choice(const Field& field, const Choice& value) override {
    if (field.key != key_) {
      return;
    }
    found_choice = value.names.at(value.current);
    for (std::size_t i = 0; new_choice && i < value.names.size(); ++i) {
      if (*new_choice == value.names[i]) {
        value.select(i);
        return;
      }
    }
    if (new_choice) {
      throw std::logic_error(key_ + " cannot be " + *new_choice);
    }
  }
  void integer(const Field&, std::int64_t&, const IntegerRange&) override {}
  void number(const Field&, double&, const NumberRange&) override {}
  void number_pair(const Field&, std::array<double, 2>&, const NumberRange&) override {}
  void text(const Field&, std::string&, TextKind) override {}
  void paths(const Field&, std::vector<std::string>&) override {}
  void texts(const Field&, std::vector<std::string>&) override {}
  void alternatives(const Field&, UnionValue&) override {}
  void section(const Field&, const std::function<void()>&) override {}

 private:
  std::string key_;
};

}  // namespace

std::optional<bool> flag_of(const AttentionConfig& attention, const std::string& key) {
  OneSetting setting(key);
  AttentionConfig(attention).visit(setting);
  return setting.found_flag;
}

std::optional<std::string> choice_of(const AttentionConfig& attention, const std::string& key) {
  OneSetting setting(key);
  AttentionConfig(attention).visit(setting);
  return setting.found_choice;
}

AttentionConfig with_flag(AttentionConfig attention, const std::string& key, bool value) {
  OneSetting setting(key);
  setting.new_flag = value;
  attention.visit(setting);
  return attention;
}

AttentionConfig with_choice(AttentionConfig attention, const std::string& key,
                            const std::string& value) {
  OneSetting setting(key);
  setting.new_choice = value;
  attention.visit(setting);
  return attention;
}

}  // namespace transnormer
