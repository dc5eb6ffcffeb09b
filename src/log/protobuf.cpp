#include "log/protobuf.h"

#include <bit>
#include <nlohmann/json.hpp>

namespace transnormer::log {
namespace {

enum class Wire : std::uint64_t { varint = 0, fixed64 = 1, bytes = 2, fixed32 = 5 };

void put_varint(std::string& out, std::uint64_t value) {
  while (value >= 0x80) {
    out += static_cast<char>(value | 0x80);
    value >>= 7;
  }
  out += static_cast<char>(value);
}

void put_tag(std::string& out, int number, Wire wire) {
  put_varint(out, static_cast<std::uint64_t>(number) << 3 | static_cast<std::uint64_t>(wire));
}

}  // namespace

void put_integer(std::string& out, int number, std::uint64_t value) {
  put_tag(out, number, Wire::varint);
  put_varint(out, value);
}

void put_double(std::string& out, int number, double value) {
  put_tag(out, number, Wire::fixed64);
  put_little_endian(out, std::bit_cast<std::uint64_t>(value));
}

void put_float(std::string& out, int number, float value) {
  put_tag(out, number, Wire::fixed32);
  put_little_endian(out, std::bit_cast<std::uint32_t>(value));
}

void put_bytes(std::string& out, int number, std::string_view bytes) {
  put_tag(out, number, Wire::bytes);
  put_varint(out, bytes.size());
  out += bytes;
}

void put_doubles(std::string& out, int number, const std::vector<double>& values) {
  std::string packed;
  for (const double value : values) {
    put_little_endian(packed, std::bit_cast<std::uint64_t>(value));
  }
  put_bytes(out, number, packed);
}

void put_string(std::string& out, int number, std::string_view text) {
  using Json = nlohmann::json;
  const std::string quoted = Json(text).dump(-1, ' ', false, Json::error_handler_t::replace);
  put_bytes(out, number, Json::parse(quoted).get_ref<const std::string&>());
}

}  // namespace transnormer::log
