#include "log/tensorboard_format.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>

namespace transnormer::log {
namespace {

// Numbers of the fields in event.proto, summary.proto and histogram.proto.
namespace field {
constexpr int kEventWallTime = 1;
constexpr int kEventStep = 2;
constexpr int kEventFileVersion = 3;
constexpr int kEventSummary = 5;
constexpr int kEventSessionLog = 7;
constexpr int kSessionLogStatus = 1;
constexpr int kSummaryValue = 1;
constexpr int kValueTag = 1;
constexpr int kValueSimple = 2;
constexpr int kValueHistogram = 5;
constexpr int kHistogramMin = 1;
constexpr int kHistogramMax = 2;
constexpr int kHistogramNum = 3;
constexpr int kHistogramSum = 4;
constexpr int kHistogramSumSquares = 5;
constexpr int kHistogramLimits = 6;
constexpr int kHistogramCounts = 7;
}  // namespace field

constexpr std::uint64_t kSessionStart = 1;

template <typename Integer>
void put_little_endian(std::string& out, Integer value) {
  for (std::size_t i = 0; i < sizeof value; ++i) {
    out += static_cast<char>(value >> (8 * i) & 0xFF);
  }
}

void put_varint(std::string& out, std::uint64_t value) {
  while (value >= 0x80) {
    out += static_cast<char>(value | 0x80);
    value >>= 7;
  }
  out += static_cast<char>(value);
}

enum class Wire : std::uint64_t { varint = 0, fixed64 = 1, bytes = 2, fixed32 = 5 };

void put_tag(std::string& out, int number, Wire wire) {
  put_varint(out, static_cast<std::uint64_t>(number) << 3 | static_cast<std::uint64_t>(wire));
}

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

constexpr std::array<std::uint32_t, 256> make_crc_table() {
  std::array<std::uint32_t, 256> table{};
  for (std::uint32_t byte = 0; byte < 256; ++byte) {
    std::uint32_t crc = byte;
    for (int bit = 0; bit < 8; ++bit) {
      crc = crc >> 1 ^ ((crc & 1) != 0 ? 0x82F63B78U : 0U);
    }
    table[byte] = crc;
  }
  return table;
}

// TFRecord stores checksums so that the checksum of data that holds checksums stays a good one.
std::uint32_t masked_crc(std::string_view bytes) {
  const std::uint32_t crc = crc32c(bytes);
  return (crc >> 15 | crc << 17) + 0xA282EAD8U;
}

// Upper limits of the buckets, ascending.
std::vector<double> make_bucket_limits() {
  std::vector<double> positive;
  for (double limit = 1e-12; limit < 1e20; limit *= 1.1) {
    positive.push_back(limit);
  }
  positive.push_back(std::numeric_limits<double>::max());
  std::vector<double> limits;
  for (auto limit = positive.rbegin(); limit != positive.rend(); ++limit) {
    limits.push_back(-*limit);
  }
  limits.push_back(0);
  limits.insert(limits.end(), positive.begin(), positive.end());
  return limits;
}

// Without the empty buckets at both ends, save one that tells where the first full one begins.
void put_buckets(std::string& out, const std::vector<double>& limits,
                 const std::vector<double>& counts) {
  const auto full = [](double count) { return count > 0; };
  auto first = std::find_if(counts.begin(), counts.end(), full) - counts.begin();
  const auto end = std::find_if(counts.rbegin(), counts.rend(), full).base() - counts.begin();
  first = std::max<std::ptrdiff_t>(first - 1, 0);
  put_doubles(out, field::kHistogramLimits, {limits.begin() + first, limits.begin() + end});
  put_doubles(out, field::kHistogramCounts, {counts.begin() + first, counts.begin() + end});
}

std::string event_at(double wall_time, std::int64_t step) {
  std::string event;
  put_double(event, field::kEventWallTime, wall_time);
  put_integer(event, field::kEventStep, static_cast<std::uint64_t>(step));
  return event;
}

}  // namespace

std::uint32_t crc32c(std::string_view bytes) {
  static constexpr std::array<std::uint32_t, 256> kTable = make_crc_table();
  std::uint32_t crc = ~0U;
  for (const char byte : bytes) {
    crc = crc >> 8 ^ kTable[(crc ^ static_cast<unsigned char>(byte)) & 0xFF];
  }
  return ~crc;
}

std::string tfrecord(std::string_view bytes) {
  std::string record;
  put_little_endian(record, static_cast<std::uint64_t>(bytes.size()));
  put_little_endian(record, masked_crc(record));
  record += bytes;
  put_little_endian(record, masked_crc(bytes));
  return record;
}

void SummaryBuilder::add_scalar(const std::string& tag, double value) {
  std::string entry;
  put_bytes(entry, field::kValueTag, tag);
  put_float(entry, field::kValueSimple, static_cast<float>(value));
  put_bytes(bytes_, field::kSummaryValue, entry);
}

void SummaryBuilder::add_histogram(const std::string& tag, const std::vector<double>& values) {
  static const std::vector<double> kLimits = make_bucket_limits();
  std::vector<double> counts(kLimits.size());
  double least = std::numeric_limits<double>::infinity();
  double most = -least;
  double number = 0;
  double sum = 0;
  double sum_squares = 0;
  for (const double value : values) {
    if (!std::isfinite(value)) {
      continue;
    }
    const auto bucket = std::upper_bound(kLimits.begin(), kLimits.end() - 1, value);
    counts[static_cast<std::size_t>(bucket - kLimits.begin())] += 1;
    least = std::min(least, value);
    most = std::max(most, value);
    number += 1;
    sum += value;
    sum_squares += value * value;
  }
  if (number == 0) {
    return;
  }
  std::string histogram;
  put_double(histogram, field::kHistogramMin, least);
  put_double(histogram, field::kHistogramMax, most);
  put_double(histogram, field::kHistogramNum, number);
  put_double(histogram, field::kHistogramSum, sum);
  put_double(histogram, field::kHistogramSumSquares, sum_squares);
  put_buckets(histogram, kLimits, counts);
  std::string entry;
  put_bytes(entry, field::kValueTag, tag);
  put_bytes(entry, field::kValueHistogram, histogram);
  put_bytes(bytes_, field::kSummaryValue, entry);
}

std::string version_event(double wall_time) {
  std::string event;
  put_double(event, field::kEventWallTime, wall_time);
  put_bytes(event, field::kEventFileVersion, "brain.Event:2");
  return event;
}

std::string session_start_event(double wall_time, std::int64_t step) {
  std::string session;
  put_integer(session, field::kSessionLogStatus, kSessionStart);
  std::string event = event_at(wall_time, step);
  put_bytes(event, field::kEventSessionLog, session);
  return event;
}

std::string summary_event(double wall_time, std::int64_t step, const SummaryBuilder& summary) {
  std::string event = event_at(wall_time, step);
  put_bytes(event, field::kEventSummary, summary.bytes());
  return event;
}

}  // namespace transnormer::log
