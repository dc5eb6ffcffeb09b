// The JSON Schema of a config file, for editors.
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "config/fields.h"
#include "config/load.h"

namespace transnormer {
namespace {

using Json = nlohmann::ordered_json;

class SchemaWriter : public FieldVisitor {
 public:
  explicit SchemaWriter(Json& properties) : properties_(&properties) {}

  void flag(const Field& field, bool& value) override {
    add(field, {{"type", "boolean"}, {"default", value}});
  }

  void integer(const Field& field, std::int64_t& value, const IntegerRange& range) override {
    Json schema{{"type", "integer"}, {"default", value}, {"minimum", range.min}};
    if (range.max != IntegerRange{}.max) {
      schema["maximum"] = range.max;
    }
    add(field, std::move(schema));
  }

  void number(const Field& field, double& value, const NumberRange& range) override {
    Json schema = number_schema(range);
    schema["default"] = value;
    add(field, std::move(schema));
  }

  void number_pair(const Field& field, std::array<double, 2>& value,
                   const NumberRange& range) override {
    add(field, {{"type", "array"},
                {"items", number_schema(range)},
                {"minItems", 2},
                {"maxItems", 2},
                {"default", value}});
  }

  void text(const Field& field, std::string& value, TextKind) override {
    add(field, {{"type", "string"}, {"default", value}});
  }

  void paths(const Field& field, std::vector<std::string>& value) override {
    Json schema = one_or_more();
    schema["default"] = value;
    add(field, std::move(schema));
  }

  void texts(const Field& field, std::vector<std::string>& value) override {
    Json schema = one_or_more();
    schema["default"] = value;
    add(field, std::move(schema));
  }

  void choice(const Field& field, const Choice& value) override {
    add(field, {{"enum", value.names}, {"default", value.names[value.current]}});
  }

  void section(const Field& field, const std::function<void()>& body) override {
    Json inside = Json::object();
    Json* outer = std::exchange(properties_, &inside);
    const Met outer_met = std::exchange(met_, {});
    body();
    properties_ = outer;
    const Met met = std::exchange(met_, outer_met);
    if (met.alternatives.empty()) {
      add(field, object_of(std::move(inside)));
    } else if (inside.size() == 1) {
      add(field, one_of(met));
    } else if (met.alternatives.size() == 1) {
      inside.update(met.alternatives.front().settings);
      add(field, object_of(std::move(inside)));
    } else {
      add(field, beside_others(met, std::move(inside)));
    }
  }

  void alternatives(const Field& tag, UnionValue& value) override {
    met_ = {.tag = tag.key, .present = value.name(), .alternatives = {}};
    for (const auto& alternative : value.alternatives().all()) {
      Json settings = Json::object();
      Json* outer = std::exchange(properties_, &settings);
      const Met outer_met = met_;
      UnionValue shown = value;
      shown.select(alternative->name);
      shown.visit(*this);
      met_ = outer_met;
      properties_ = outer;
      met_.alternatives.push_back({alternative->name, alternative->help, std::move(settings)});
    }
    add(tag, {{"enum", value.alternatives().names()}, {"default", value.name()}});
  }

  static Json object_of(Json properties) {
    return {
        {"type", "object"}, {"properties", std::move(properties)}, {"additionalProperties", false}};
  }

  // A string, or a list of strings.
  static Json one_or_more() {
    const Json path{{"type", "string"}};
    return {{"oneOf", {path, {{"type", "array"}, {"items", path}}}}};
  }

 private:
  static Json number_schema(const NumberRange& range) {
    Json schema{{"type", "number"}};
    schema[range.min_open ? "exclusiveMinimum" : "minimum"] = range.min;
    if (range.max != NumberRange{}.max) {
      schema[range.max_open ? "exclusiveMaximum" : "maximum"] = range.max;
    }
    return schema;
  }

  // The union of the section that is being visited.
  struct Met {
    struct Described {
      std::string name;
      std::string help;
      Json settings;
    };
    std::string tag;
    std::string present;
    std::vector<Described> alternatives;
  };

  // Of a section that holds a union alone: an object for each alternative, told apart by the
  // constant under the tag. Only the present one may leave its name out, so exactly one fits.
  static Json one_of(const Met& met) {
    Json objects = Json::array();
    for (const Met::Described& alternative : met.alternatives) {
      Json inside;
      inside[met.tag] = {{"const", alternative.name}};
      inside.update(alternative.settings);
      Json schema = object_of(std::move(inside));
      schema["description"] = alternative.help;
      if (alternative.name != met.present) {
        schema["required"] = {met.tag};
      }
      objects.push_back(std::move(schema));
    }
    return {{"oneOf", std::move(objects)}, {"default", {{met.tag, met.present}}}};
  }

  // Of a section that holds other keys, too: the settings of all alternatives among the properties,
  // and a condition for each alternative that says which of them it has. Without a name the
  // condition of the present one holds.
  static Json beside_others(const Met& met, Json properties) {
    Json conditions = Json::array();
    for (const Met::Described& alternative : met.alternatives) {
      Json own = alternative.settings;
      for (const Met::Described& other : met.alternatives) {
        for (const auto& [key, schema] : other.settings.items()) {
          properties[key] = true;
          if (!own.contains(key)) {
            own[key] = false;
          }
        }
      }
      Json condition{{"properties", {{met.tag, {{"const", alternative.name}}}}}};
      if (alternative.name != met.present) {
        condition["required"] = {met.tag};
      }
      conditions.push_back(
          {{"if", std::move(condition)}, {"then", {{"properties", std::move(own)}}}});
    }
    Json section = object_of(std::move(properties));
    section["allOf"] = std::move(conditions);
    return section;
  }

  void add(const Field& field, Json schema) {
    std::string help = field.help;
    if (field.unit[0] != '\0') {
      help += std::string(" (") + field.unit + ")";
    }
    schema["description"] = help;
    (*properties_)[field.key] = std::move(schema);
  }

  Json* properties_;
  Met met_;
};

}  // namespace

std::string config_schema() {
  Json properties;
  properties["$schema"] = {{"type", "string"}, {"description", "For editors; not read"}};
  properties["include"] = SchemaWriter::one_or_more();
  properties["include"]["description"] =
      "Configs to start from, relative to this file; later ones win, this file wins over all";
  Config config;
  SchemaWriter writer(properties);
  visit_fields(config, writer);
  Json root{{"$schema", "https://json-schema.org/draft/2020-12/schema"},
            {"title", "Config of transnormer"}};
  root.update(SchemaWriter::object_of(std::move(properties)));
  return root.dump(2) + "\n";
}

}  // namespace transnormer
