// The JSON Schema of a config file, for editors.
#include <nlohmann/json.hpp>
#include <utility>

#include "config/fields.h"
#include "config/load.h"
#include "config/names.h"

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

  void choice(const Field& field, const Choice& value) override {
    add(field, {{"enum", value.names}, {"default", value.names[value.current]}});
  }

  void section(const Field& field, const std::function<void()>& body) override {
    Json inside = Json::object();
    Json* outer = std::exchange(properties_, &inside);
    body();
    properties_ = outer;
    add(field, object_of(std::move(inside)));
  }

  // One alternative for each attention, told apart by the constant under `attention`. Only the
  // default attention may leave its name out, so exactly one alternative fits.
  void attention(const Field& field, AttentionConfig& value) override {
    Json alternatives = Json::array();
    for (AttentionConfig& alternative : defaults_) {
      Json inside;
      inside["attention"] = {{"const", attention_name(alternative)}};
      Json* outer = std::exchange(properties_, &inside);
      visit_settings(alternative, *this);
      properties_ = outer;
      Json schema = object_of(std::move(inside));
      schema["description"] = attention_help(alternative);
      if (alternative.index() != value.index()) {
        schema["required"] = {"attention"};
      }
      alternatives.push_back(std::move(schema));
    }
    add(field,
        {{"oneOf", std::move(alternatives)}, {"default", {{"attention", attention_name(value)}}}});
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

  void add(const Field& field, Json schema) {
    std::string help = field.help;
    if (field.unit[0] != '\0') {
      help += std::string(" (") + field.unit + ")";
    }
    schema["description"] = help;
    (*properties_)[field.key] = std::move(schema);
  }

  Json* properties_;
  std::vector<AttentionConfig> defaults_ = attention_defaults();
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
