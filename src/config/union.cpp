#include "config/union.h"

#include <algorithm>

namespace transnormer {

void Alternatives::add(Alternative alternative) {
  if (find(alternative.name) != nullptr) {
    throw std::logic_error("the " + noun_ + " \"" + alternative.name + "\" is there twice");
  }
  const auto place = std::find_if(all_.begin(), all_.end(), [&](const auto& present) {
    return present->name > alternative.name;
  });
  all_.insert(place, std::make_shared<const Alternative>(std::move(alternative)));
}

std::vector<const char*> Alternatives::names() const {
  std::vector<const char*> names;
  for (const auto& alternative : all_) {
    names.push_back(alternative->name.c_str());
  }
  return names;
}

const Alternative* Alternatives::find(const std::string& name) const {
  const auto found = std::find_if(
      all_.begin(), all_.end(), [&](const auto& alternative) { return alternative->name == name; });
  return found == all_.end() ? nullptr : found->get();
}

Alternatives& attentions() {
  static Alternatives family("attention");
  return family;
}

Alternatives& attention_parts() {
  static Alternatives family("attention");
  return family;
}

Alternatives& optimizers() {
  static Alternatives family("optimizer");
  return family;
}

UnionValue::UnionValue(const UnionValue& other)
    : alternatives_(other.alternatives_),
      name_(other.name_),
      own_(other.own_ ? other.own_->clone() : nullptr) {}

UnionValue& UnionValue::operator=(const UnionValue& other) {
  return *this = UnionValue(other);
}

void UnionValue::select(const std::string& name) {
  if (name != name_) {
    name_ = name;
    own_.reset();
  }
}

const Settings& UnionValue::settings() const {
  if (own_) {
    return *own_;
  }
  if (const Alternative* declared = alternatives_->find(name_)) {
    return *declared->defaults;
  }
  throw std::logic_error("the " + alternatives_->noun() + " \"" + name_ +
                         "\" is not part of this program");
}

Settings& UnionValue::own() {
  if (!own_) {
    own_ = settings().clone();
  }
  return *own_;
}

bool operator==(const UnionValue& a, const UnionValue& b) {
  return a.name_ == b.name_ && ((!a.own_ && !b.own_) || a.settings().equals(b.settings()));
}

}  // namespace transnormer
