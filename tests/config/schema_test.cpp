#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "config/listing.h"
#include "config/support.h"

namespace transnormer {
namespace {

using Json = nlohmann::json;

bool fits(const Json& value, const Json& schema);

bool fits_object(const Json& value, const Json& schema) {
  for (const auto& [key, inside] : value.items()) {
    if (!schema.at("properties").contains(key)) {
      if (!schema.value("additionalProperties", true)) {
        return false;
      }
    } else if (!fits(inside, schema.at("properties").at(key))) {
      return false;
    }
  }
  const Json required = schema.value("required", Json::array());
  return std::all_of(required.begin(), required.end(),
                     [&](const Json& key) { return value.contains(key.get<std::string>()); });
}

bool fits_number(double value, const Json& schema) {
  return value >= schema.value("minimum", -INFINITY) &&
         value <= schema.value("maximum", INFINITY) &&
         value > schema.value("exclusiveMinimum", -INFINITY) &&
         value < schema.value("exclusiveMaximum", INFINITY);
}

// The part of JSON Schema that the config's schema uses.
bool fits(const Json& value, const Json& schema) {
  if (schema.is_boolean()) {
    return schema.get<bool>();
  }
  if (schema.contains("if")) {
    return !fits(value, schema["if"]) || fits(value, schema["then"]);
  }
  const Json all_of = schema.value("allOf", Json::array());
  if (!std::all_of(all_of.begin(), all_of.end(),
                   [&](const Json& one) { return fits(value, one); })) {
    return false;
  }
  if (schema.contains("oneOf")) {
    const Json& all = schema["oneOf"];
    return std::count_if(all.begin(), all.end(),
                         [&](const Json& one) { return fits(value, one); }) == 1;
  }
  if (schema.contains("const")) {
    return value == schema["const"];
  }
  if (schema.contains("enum")) {
    const Json& all = schema["enum"];
    return std::find(all.begin(), all.end(), value) != all.end();
  }
  const std::string type = schema.value("type", "object");
  if (type == "object") {
    return value.is_object() && fits_object(value, schema);
  }
  if (type == "array") {
    return value.is_array() && value.size() >= schema.value("minItems", 0U) &&
           value.size() <= schema.value("maxItems", 1000U) &&
           std::all_of(value.begin(), value.end(),
                       [&](const Json& item) { return fits(item, schema["items"]); });
  }
  if (type == "integer" || type == "number") {
    return (type == "integer" ? value.is_number_integer() : value.is_number()) &&
           fits_number(value, schema);
  }
  return type == "boolean" ? value.is_boolean() : type == "string" && value.is_string();
}

class ConfigSchema : public testing::Test {
 protected:
  [[nodiscard]] bool accepts(const std::string& json) const {
    return fits(Json::parse(json, nullptr, true, true), schema_);
  }
  const Json schema_ = Json::parse(config_schema());
};

TEST_F(ConfigSchema, AcceptsResolvedConfigs) {
  for (const char* variant : {"t1", "t2", "transformer", "custom"}) {
    EXPECT_TRUE(accepts(
        config_to_json(config_of("{}", {std::string("model.variant=") + variant, "data.train=a"}))))
        << variant;
  }
}

TEST_F(ConfigSchema, AcceptsWhatTheReaderAcceptsAndRefusesWhatItRefuses) {
  for (const char* json :
       {R"({"include": "a.json", "$schema": "b"})", R"({"include": ["a.json"]})",
        R"({"data": {"train": "x", "valid": ["y", "z"]}})", R"({"model": {"early": {}}})",
        R"({"optimizer": {"name": "muon", "ns_steps": 3, "betas": [0.9, 0.95]}})",
        R"({"model": {"variant": "custom", "early": {"block": 3}}})",
        R"({"model": {"variant": "custom", "late": {"attention": "diag", "block": 3}}})"}) {
    EXPECT_TRUE(accepts(json)) << json;
  }
  for (const char* json :
       {R"({"modle": {}})", R"({"model": {"dim": 0}})", R"({"model": {"dim": "x"}})",
        R"({"model": {"dropout": 1}})", R"({"model": {"norm": "none"}})",
        R"({"optimizer": {"name": "lion", "eps": 1e-8}})", R"({"optimizer": {"ns_steps": 3}})",
        R"({"optimizer": {"betas": [0.9]}})", R"({"optimizer": {"betas": [0.9, 1.0]}})",
        R"({"model": {"variant": "custom", "early": {"attention": "diag", "kernel": "elu"}}})",
        R"({"model": {"variant": "custom", "late": {"block": 3}}})",
        R"({"model": {"late": {"attention": "other"}}})", R"({"log": {"tensorboard": 1}})"}) {
    EXPECT_FALSE(accepts(json)) << json;
    EXPECT_FALSE(faults_of(json).empty()) << json;
  }
}

TEST_F(ConfigSchema, DescribesEveryKeyWithItsDefault) {
  EXPECT_EQ(schema_["$schema"], "https://json-schema.org/draft/2020-12/schema");
  for (const FieldRow& row : list_fields(Config{})) {
    if (!row.alternative.empty() || row.key.ends_with(".attention")) {
      continue;
    }
    const Json* at = &schema_;
    std::string rest = row.key;
    for (std::size_t dot; (dot = rest.find('.')) != std::string::npos; rest.erase(0, dot + 1)) {
      at = &at->at("properties").at(rest.substr(0, dot));
    }
    const Json& field = at->at("properties").at(rest);
    EXPECT_EQ(field.at("default"), Json::parse(row.value)) << row.key;
    EXPECT_FALSE(field.at("description").get<std::string>().empty()) << row.key;
  }
}

TEST_F(ConfigSchema, TellsAttentionsApartByTheirName) {
  const Json& alternatives = schema_["properties"]["model"]["properties"]["late"]["oneOf"];
  std::vector<std::string> names;
  for (const Json& alternative : alternatives) {
    names.push_back(alternative["properties"]["attention"]["const"]);
  }
  EXPECT_THAT(names, testing::ElementsAreArray(attentions().names()));
  EXPECT_THAT(names, testing::IsSupersetOf({"diag", "norm", "softmax"}));
}

}  // namespace
}  // namespace transnormer
