#include "checkpoint/safetensors_header.h"

#include <algorithm>
#include <array>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "config/json_tree.h"
#include "util/error.h"
#include "util/foreign_json.h"

namespace transnormer {
namespace {

using Json = nlohmann::json;

constexpr std::size_t kSizeBytes = 8;
constexpr std::size_t kAlignment = 8;
constexpr std::size_t kLargestHeader = 100'000'000;  // the limit of the format

[[noreturn]] void fail(const std::string& name, const std::string& fault) {
  throw UserError(name + ": not a whole safetensors file: " + fault);
}

[[noreturn]] void fail_about(const std::string& name, const std::string& tensor,
                             const std::string& fault) {
  fail(name, "tensor " + printable(tensor, false) + " " + fault);
}

// No count: nothing.
std::optional<std::int64_t> count_of(const Json& value) {
  const std::optional<std::int64_t> count = json_integer(value);
  return count && *count >= 0 ? count : std::nullopt;
}

std::uint64_t read_size(const InputFile& file) {
  std::array<unsigned char, kSizeBytes> bytes{};
  file.read_at(0, bytes.data(), bytes.size());
  std::uint64_t size = 0;
  for (std::size_t i = kSizeBytes; i-- > 0;) {
    size = size << 8 | bytes[i];
  }
  return size;
}

std::size_t element_bytes(const std::string& dtype, const std::string& name) {
  static const std::map<std::string, std::size_t> kBytes{
      {"F64", 8}, {"F32", 4}, {"F16", 2}, {"BF16", 2}, {"I64", 8},
      {"I32", 4}, {"I16", 2}, {"I8", 1},  {"U8", 1},   {"BOOL", 1}};
  const auto found = kBytes.find(dtype);
  if (found == kBytes.end()) {
    fail(name, "unknown type of numbers " + printable(dtype, true));
  }
  return found->second;
}

// Bytes that a tensor of this type and shape takes; no more than a file can hold.
std::size_t bytes_of(const TensorEntry& entry, const std::string& name) {
  std::size_t bytes = element_bytes(entry.dtype, name);
  for (const std::int64_t size : entry.shape) {
    const auto count = static_cast<std::size_t>(size);
    if (count != 0 && bytes > std::numeric_limits<std::size_t>::max() / count) {
      fail_about(name, entry.name, "has an impossible shape");
    }
    bytes *= count;
  }
  return bytes;
}

// nlohmann's exceptions tell a type apart from a missing key; here both are the same fault.
TensorEntry parse_entry(const std::string& key, const Json& value, const std::string& name) {
  try {
    TensorEntry entry;
    entry.name = key;
    entry.dtype = value.at("dtype").get<std::string>();
    for (const Json& size : value.at("shape").get_ref<const Json::array_t&>()) {
      const std::optional<std::int64_t> count = count_of(size);
      if (!count) {
        fail_about(name, key, "has an impossible shape");
      }
      entry.shape.push_back(*count);
    }
    const auto& offsets = value.at("data_offsets").get_ref<const Json::array_t&>();
    const auto begin = offsets.size() == 2 ? count_of(offsets[0]) : std::nullopt;
    const auto end = offsets.size() == 2 ? count_of(offsets[1]) : std::nullopt;
    if (!begin || !end) {
      fail_about(name, key, "has no place in the file");
    }
    entry.begin = static_cast<std::size_t>(*begin);
    entry.end = static_cast<std::size_t>(*end);
    return entry;
  } catch (const Json::exception&) {
    fail_about(name, key, "is described wrongly");
  }
}

// Of entries in the order of their places.
void check_places(const std::vector<TensorEntry>& entries, std::size_t data_size,
                  const std::string& name) {
  std::size_t expected = 0;
  for (const TensorEntry& entry : entries) {
    if (entry.begin != expected || entry.end < entry.begin ||
        entry.end - entry.begin != bytes_of(entry, name)) {
      fail_about(name, entry.name, "is not where its size and shape put it");
    }
    expected = entry.end;
  }
  if (expected != data_size) {
    fail(name, "its tensors take " + std::to_string(expected) + " bytes, the file holds " +
                   std::to_string(data_size));
  }
}

}  // namespace

std::string format_tensor_table(const std::vector<TensorEntry>& entries) {
  // The mark of the framework, which some readers ask for.
  nlohmann::ordered_json header = {{"__metadata__", {{"format", "pt"}}}};
  for (const TensorEntry& entry : entries) {
    header[entry.name] = {
        {"dtype", entry.dtype}, {"shape", entry.shape}, {"data_offsets", {entry.begin, entry.end}}};
  }
  std::string text = header.dump();
  text.append((kAlignment - text.size() % kAlignment) % kAlignment, ' ');
  std::string bytes;
  for (std::size_t i = 0; i < kSizeBytes; ++i) {
    bytes += static_cast<char>(text.size() >> (8 * i) & 0xFF);
  }
  return bytes + text;
}

TensorTable read_tensor_table(const InputFile& file) {
  const std::string name = file.path().string();
  const auto file_size = static_cast<std::size_t>(file.size());
  if (file_size < kSizeBytes) {
    fail(name, "it ends before its header");
  }
  const std::uint64_t size = read_size(file);
  if (size > kLargestHeader || size > file_size - kSizeBytes) {
    fail(name, "a header of " + std::to_string(size) + " bytes is announced in a file of " +
                   std::to_string(file_size));
  }
  std::string text(size, '\0');
  file.read_at(kSizeBytes, text.data(), text.size());
  const Json header = parse_foreign_json(text);
  if (!header.is_object()) {
    fail(name, "its header is not a JSON object");
  }
  TensorTable table;
  table.data_begin = kSizeBytes + size;
  for (const auto& [key, value] : header.items()) {
    if (key != "__metadata__") {
      table.entries.push_back(parse_entry(key, value, name));
    }
  }
  std::ranges::sort(table.entries, {},
                    [](const TensorEntry& entry) { return std::pair(entry.begin, entry.end); });
  check_places(table.entries, file_size - table.data_begin, name);
  return table;
}

}  // namespace transnormer
