// The wire format of protocol buffers, as far as TensorBoard's files need it: each call appends one
// field with its number. Internal to src/log.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace transnormer::log {

template <typename Integer>
void put_little_endian(std::string& out, Integer value) {
  for (std::size_t i = 0; i < sizeof value; ++i) {
    out += static_cast<char>(value >> (8 * i) & 0xFF);
  }
}

void put_integer(std::string& out, int number, std::uint64_t value);
void put_double(std::string& out, int number, double value);
void put_float(std::string& out, int number, float value);
// Bytes, a string, or a message that is encoded already.
void put_bytes(std::string& out, int number, std::string_view bytes);
// Packed.
void put_doubles(std::string& out, int number, const std::vector<double>& values);

// A field of type string must be UTF-8, else readers refuse the whole message: what is none is
// replaced.
void put_string(std::string& out, int number, std::string_view text);

}  // namespace transnormer::log
