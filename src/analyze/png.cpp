#include "analyze/png.h"

#include <array>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string_view>

namespace transnormer {
namespace {

using namespace std::string_view_literals;

constexpr std::string_view kSignature = "\x89PNG\r\n\x1a\n"sv;
// The signature, and the header's chunk: length, type, 13 bytes, checksum.
constexpr std::size_t kBehindHeader = 8 + 4 + 4 + 13 + 4;
constexpr std::string_view kMark = "tEXtSoftware\0transnormer analyze"sv;

std::string big_endian(std::uint32_t number) {
  std::string bytes;
  for (int shift = 24; shift >= 0; shift -= 8) {
    bytes += static_cast<char>(number >> static_cast<unsigned>(shift) & 0xFFU);
  }
  return bytes;
}

// The checksum of chunks: CRC-32 with the polynomial 0xEDB88320 (PNG specification, annex D).
std::uint32_t checksum(std::string_view bytes) {
  std::uint32_t sum = 0xFFFFFFFFU;
  for (const char byte : bytes) {
    sum ^= static_cast<unsigned char>(byte);
    for (int bit = 0; bit < 8; ++bit) {
      sum = (sum & 1U) != 0 ? sum >> 1U ^ 0xEDB88320U : sum >> 1U;
    }
  }
  return ~sum;
}

}  // namespace

std::string to_png(gdImagePtr image) {
  int size = 0;
  const std::unique_ptr<void, void (*)(void*)> bytes(gdImagePngPtr(image, &size), gdFree);
  if (bytes == nullptr || size < static_cast<int>(kBehindHeader)) {
    throw std::runtime_error("a picture could not be made");
  }
  std::string png(static_cast<const char*>(bytes.get()), static_cast<std::size_t>(size));
  constexpr std::size_t kTypeLength = 4;
  png.insert(kBehindHeader, big_endian(static_cast<std::uint32_t>(kMark.size() - kTypeLength)) +
                                std::string(kMark) + big_endian(checksum(kMark)));
  return png;
}

bool is_own_png(const InputFile& file) {
  constexpr std::size_t kMarkBegins = kBehindHeader + 4;
  std::array<char, kMarkBegins + kMark.size()> head{};
  if (file.size() < static_cast<std::int64_t>(head.size())) {
    return false;
  }
  file.read_at(0, head.data(), head.size());
  const std::string_view read(head.data(), head.size());
  return read.starts_with(kSignature) && read.substr(kMarkBegins) == kMark;
}

}  // namespace transnormer
