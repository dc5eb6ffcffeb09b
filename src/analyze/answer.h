// What `analyze` answers, for scripts and for people.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace transnormer {

struct Answer {
  nlohmann::ordered_json json;   // figures, rows or curves; null where there is no number
  nlohmann::ordered_json table;  // for people: an array of objects that all have the same keys
  std::string note;              // what the table shows, a line or more
};

// An array of objects with the same keys: a line of names, then one a row, all digits; empty where
// there is no number.
[[nodiscard]] std::string to_csv(const nlohmann::ordered_json& rows);
// The same for people: aligned, three digits, "-" where there is no number.
[[nodiscard]] std::string to_text(const nlohmann::ordered_json& rows);

// Null for what is not finite.
[[nodiscard]] nlohmann::ordered_json number(double value);

}  // namespace transnormer
