#include "checkpoint/unigram_file.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "checkpoint/manifest.h"

namespace transnormer {
namespace {

static_assert(std::endian::native == std::endian::little, "unigram.bin is little-endian");

constexpr std::string_view kMagic = "TNUNIGRM";
constexpr std::int64_t kVersion = 1;
constexpr std::size_t kHeaderBytes = 24;

void append(std::string& bytes, std::int64_t value) {
  bytes.append(reinterpret_cast<const char*>(&value), sizeof value);
}

std::int64_t read_at(std::string_view bytes, std::size_t offset) {
  std::int64_t value = 0;
  std::memcpy(&value, bytes.data() + offset, sizeof value);
  return value;
}

}  // namespace

std::string unigram_to_bytes(const std::vector<std::int64_t>& counts) {
  std::string bytes(kMagic);
  append(bytes, kVersion);
  append(bytes, static_cast<std::int64_t>(counts.size()));
  for (const std::int64_t count : counts) {
    append(bytes, count);
  }
  return bytes;
}

std::vector<std::int64_t> unigram_from_bytes(std::string_view bytes, const std::string& name) {
  if (bytes.size() < kHeaderBytes || !bytes.starts_with(kMagic)) {
    throw DamagedCheckpointError(name + ": not a file of token counts");
  }
  const std::int64_t version = read_at(bytes, 8);
  if (version != kVersion) {
    throw UserError(name + ": version " + std::to_string(version) +
                    " of token counts, this program reads version " + std::to_string(kVersion));
  }
  const auto count = static_cast<std::uint64_t>(read_at(bytes, 16));
  const std::size_t payload = bytes.size() - kHeaderBytes;
  if (payload % sizeof(std::int64_t) != 0 || count != payload / sizeof(std::int64_t)) {
    throw DamagedCheckpointError(name + ": damaged: " + std::to_string(count) +
                                 " counts announced in " + std::to_string(payload) + " bytes");
  }
  std::vector<std::int64_t> counts(count);
  if (count > 0) {
    std::memcpy(counts.data(), bytes.data() + kHeaderBytes, payload);
  }
  constexpr std::int64_t kMost = std::int64_t{1} << 60;
  if (std::ranges::any_of(counts, [](std::int64_t n) { return n < 0 || n > kMost; })) {
    throw DamagedCheckpointError(name + ": damaged: it holds a number that is no count");
  }
  return counts;
}

}  // namespace transnormer
