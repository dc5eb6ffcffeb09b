#include "log/tensorboard_format.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <type_traits>

#include "log/protobuf.h"

namespace transnormer::log {
namespace {

// Numbers of the fields in event.proto, summary.proto, histogram.proto, tensor.proto,
// tensor_shape.proto, struct.proto and the plugin's plugin_data.proto.
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
constexpr int kValueTensor = 8;
constexpr int kValueMetadata = 9;
constexpr int kMetadataPlugin = 1;
constexpr int kPluginName = 1;
constexpr int kPluginContent = 2;
constexpr int kTensorType = 1;
constexpr int kTensorShape = 2;
constexpr int kTensorStrings = 8;
constexpr int kShapeDimension = 2;
constexpr int kDimensionSize = 1;
constexpr int kHparamsStart = 3;
constexpr int kHparamsEnd = 4;
constexpr int kStartHparams = 1;
constexpr int kStartTime = 5;
constexpr int kEndStatus = 1;
constexpr int kEndTime = 2;
constexpr int kMapKey = 1;
constexpr int kMapValue = 2;
constexpr int kJsonNumber = 2;
constexpr int kJsonString = 3;
constexpr int kJsonBool = 4;
constexpr int kHistogramMin = 1;
constexpr int kHistogramMax = 2;
constexpr int kHistogramNum = 3;
constexpr int kHistogramSum = 4;
constexpr int kHistogramSumSquares = 5;
constexpr int kHistogramLimits = 6;
constexpr int kHistogramCounts = 7;
}  // namespace field

constexpr std::uint64_t kSessionStart = 1;
constexpr std::uint64_t kTypeFloat = 1;
constexpr std::uint64_t kTypeString = 7;
constexpr std::uint64_t kStatusSuccess = 1;
constexpr std::uint64_t kStatusFailure = 2;

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

// The entry of a Summary that a plugin reads: what it says is a tensor, and `content` for itself.
std::string plugin_value(const std::string& tag, std::string_view plugin, std::string_view content,
                         std::string_view tensor) {
  std::string data;
  put_bytes(data, field::kPluginName, plugin);
  put_bytes(data, field::kPluginContent, content);
  std::string metadata;
  put_bytes(metadata, field::kMetadataPlugin, data);
  std::string entry;
  put_string(entry, field::kValueTag, tag);
  put_bytes(entry, field::kValueTensor, tensor);
  put_bytes(entry, field::kValueMetadata, metadata);
  return entry;
}

// What the plugin of hyper-parameters reads stands in the metadata alone; the tensor is empty.
std::string hparams_value(const std::string& name, int number, std::string_view message) {
  std::string content;
  put_bytes(content, number, message);
  std::string dimension;
  put_integer(dimension, field::kDimensionSize, 0);
  std::string shape;
  put_bytes(shape, field::kShapeDimension, dimension);
  std::string tensor;
  put_integer(tensor, field::kTensorType, kTypeFloat);
  put_bytes(tensor, field::kTensorShape, shape);
  return plugin_value("_hparams_/" + name, "hparams", content, tensor);
}

std::string json_value(const SettingValue& value) {
  std::string message;
  std::visit(
      [&message](const auto& held) {
        using Held = std::decay_t<decltype(held)>;
        if constexpr (std::is_same_v<Held, bool>) {
          put_integer(message, field::kJsonBool, held ? 1 : 0);
        } else if constexpr (std::is_same_v<Held, double>) {
          put_double(message, field::kJsonNumber, held);
        } else {
          put_string(message, field::kJsonString, held);
        }
      },
      value);
  return message;
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
  put_string(entry, field::kValueTag, tag);
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
  put_string(entry, field::kValueTag, tag);
  put_bytes(entry, field::kValueHistogram, histogram);
  put_bytes(bytes_, field::kSummaryValue, entry);
}

void SummaryBuilder::add_text(const std::string& name, std::string_view markdown) {
  std::string tensor;
  put_integer(tensor, field::kTensorType, kTypeString);
  put_bytes(tensor, field::kTensorShape, "");  // a scalar
  put_string(tensor, field::kTensorStrings, markdown);
  put_bytes(bytes_, field::kSummaryValue, plugin_value(name + "/text_summary", "text", "", tensor));
}

void SummaryBuilder::add_hparams_start(const Settings& settings, double wall_time) {
  std::string start;
  for (const auto& [name, value] : settings) {
    std::string entry;
    put_string(entry, field::kMapKey, name);
    put_bytes(entry, field::kMapValue, json_value(value));
    put_bytes(start, field::kStartHparams, entry);
  }
  put_double(start, field::kStartTime, wall_time);
  put_bytes(bytes_, field::kSummaryValue,
            hparams_value("session_start_info", field::kHparamsStart, start));
}

void SummaryBuilder::add_hparams_end(bool success, double wall_time) {
  std::string end;
  put_integer(end, field::kEndStatus, success ? kStatusSuccess : kStatusFailure);
  put_double(end, field::kEndTime, wall_time);
  put_bytes(bytes_, field::kSummaryValue,
            hparams_value("session_end_info", field::kHparamsEnd, end));
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
