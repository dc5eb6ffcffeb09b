// Numbers as people read them, and back.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace transnormer {

// 155988540 -> "155,988,540".
[[nodiscard]] std::string format_count(std::int64_t count);

// 4831838208 -> "4.50 GiB".
[[nodiscard]] std::string format_bytes(double bytes);

// 12345.6 -> "12.3k", 3.2e9 -> "3.2G".
[[nodiscard]] std::string format_short(double value);

// Three significant digits: 0.000512345 -> "0.000512", 1e-07 -> "1e-07".
[[nodiscard]] std::string format_significant(double value);

// 3723 -> "1h02m", 65 -> "1m05s", 4.2 -> "4.2s"; "?" for what is endless or no number.
[[nodiscard]] std::string format_duration(double seconds);

// `digits` after the point; "nan" and "inf" for what is not finite.
[[nodiscard]] std::string format_fixed(double value, int digits);

// A decimal number that is all of the text: no spaces, no plus sign, no hexadecimal, and nothing
// that is not finite or does not fit.
[[nodiscard]] std::optional<std::int64_t> parse_integer(std::string_view text);
[[nodiscard]] std::optional<double> parse_real(std::string_view text);

}  // namespace transnormer
