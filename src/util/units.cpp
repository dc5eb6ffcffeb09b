#include "util/units.h"

#include <array>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <system_error>

namespace transnormer {
namespace {

constexpr double kEndless = 1e12;  // seconds; more tells nobody anything

template <typename... Values>
std::string print(const char* format, Values... values) {
  std::array<char, 64> buffer{};
  std::snprintf(buffer.data(), buffer.size(), format, values...);
  return buffer.data();
}

template <class T>
std::optional<T> parse_whole(std::string_view text) {
  T value{};
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  return error == std::errc{} && stop == end ? std::optional(value) : std::nullopt;
}

}  // namespace

std::string format_count(std::int64_t count) {
  std::string digits = std::to_string(count);
  const std::size_t first = count < 0 ? 1 : 0;
  for (std::size_t i = digits.size(); i > first + 3;) {
    i -= 3;
    digits.insert(i, ",");
  }
  return digits;
}

// The limits of a unit lie where rounding would show the next one.
std::string format_bytes(double bytes) {
  constexpr std::array kUnits{"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  std::size_t unit = 0;
  while (bytes >= 1023.995 && unit + 1 < kUnits.size()) {
    bytes /= 1024;
    ++unit;
  }
  return print(unit == 0 ? "%.0f %s" : "%.2f %s", bytes, kUnits[unit]);
}

std::string format_short(double value) {
  if (!std::isfinite(value)) {
    return print("%g", value);
  }
  constexpr std::array kUnits{"", "k", "M", "G", "T", "P"};
  std::size_t unit = 0;
  while (std::abs(value) >= 999.95 && unit + 1 < kUnits.size()) {
    value /= 1000;
    ++unit;
  }
  return print(unit == 0 && value == std::floor(value) ? "%.0f%s" : "%.1f%s", value, kUnits[unit]);
}

std::string format_significant(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.3g", value);
  return text;
}

std::string format_duration(double seconds) {
  if (!(seconds < kEndless)) {
    return "?";
  }
  if (seconds < 59.95) {
    return print("%.1fs", seconds);
  }
  const auto whole = std::llround(seconds);
  if (whole < 3600) {
    return print("%lldm%02llds", whole / 60, whole % 60);
  }
  if (whole < 86400) {
    return print("%lldh%02lldm", whole / 3600, whole / 60 % 60);
  }
  return print("%lldd%02lldh", whole / 86400, whole / 3600 % 24);
}

std::string format_fixed(double value, int digits) {
  if (std::isnan(value)) {
    return "nan";  // whatever its sign
  }
  return print("%.*f", digits, value);
}

std::optional<std::int64_t> parse_integer(std::string_view text) {
  return parse_whole<std::int64_t>(text);
}

std::optional<double> parse_real(std::string_view text) {
  const std::optional<double> value = parse_whole<double>(text);
  return value && std::isfinite(*value) ? value : std::nullopt;
}

}  // namespace transnormer
