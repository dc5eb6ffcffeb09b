// TensorBoard's event files, written by hand: TFRecord frames around the protocol buffers Event and
// Summary, of which only the fields used here are encoded. Internal to src/log.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "log/hparams.h"

namespace transnormer::log {

// CRC-32C (Castagnoli), as in RFC 3720.
[[nodiscard]] std::uint32_t crc32c(std::string_view bytes);

// length (u64), masked crc of it, the bytes, masked crc of them.
[[nodiscard]] std::string tfrecord(std::string_view bytes);

// The values of one Summary, collected.
class SummaryBuilder {
 public:
  void add_scalar(const std::string& tag, double value);
  // Buckets grow by a tenth from 1e-12 on, to both sides of zero, as TensorFlow's own. Values that
  // are not finite are left out.
  void add_histogram(const std::string& tag, const std::vector<double>& values);
  // What the text plugin shows under `name`.
  void add_text(const std::string& name, std::string_view markdown);
  // What the plugin of hyper-parameters knows a run by: what it was begun with, and how it ended.
  void add_hparams_start(const Settings& settings, double wall_time);
  void add_hparams_end(bool success, double wall_time);
  [[nodiscard]] const std::string& bytes() const { return bytes_; }

 private:
  std::string bytes_;
};

[[nodiscard]] std::string version_event(double wall_time);
// Tells TensorBoard to drop the points at `step` and later that were written before.
[[nodiscard]] std::string session_start_event(double wall_time, std::int64_t step);
[[nodiscard]] std::string summary_event(double wall_time, std::int64_t step,
                                        const SummaryBuilder& summary);

}  // namespace transnormer::log
