#include "checkpoint/safetensors_header.h"

#include <algorithm>
#include <array>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>

#include "util/error.h"

namespace transnormer {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t kSizeBytes = 8;
constexpr std::size_t kAlignment = 8;
constexpr std::size_t kLargestHeader = 100'000'000;  // the limit of the format

[[noreturn]] void fail(const std::string& name, const std::string& fault) {
  throw UserError(name + ": not a whole safetensors file: " + fault);
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
    fail(name, "unknown type of numbers \"" + dtype + "\"");
  }
  return found->second;
}

// Bytes that a tensor of this type and shape takes; no more than a file can hold.
std::size_t bytes_of(const TensorEntry& entry, const std::string& name) {
  std::size_t bytes = element_bytes(entry.dtype, name);
  for (const std::int64_t size : entry.shape) {
    const auto count = static_cast<std::size_t>(size);
    if (count != 0 && bytes > std::numeric_limits<std::size_t>::max() / count) {
      fail(name, "tensor " + entry.name + " has an impossible shape");
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
      if (!size.is_number_unsigned()) {
        fail(name, "tensor " + key + " has an impossible shape");
      }
      entry.shape.push_back(size.get<std::int64_t>());
    }
    const Json& offsets = value.at("data_offsets");
    if (offsets.size() != 2 || !offsets[0].is_number_unsigned() ||
        !offsets[1].is_number_unsigned()) {
      fail(name, "tensor " + key + " has no place in the file");
    }
    entry.begin = offsets[0].get<std::size_t>();
    entry.end = offsets[1].get<std::size_t>();
    return entry;
  } catch (const Json::exception&) {
    fail(name, "tensor " + key + " is described wrongly");
  }
}

void check_places(const std::vector<TensorEntry>& entries, std::size_t data_size,
                  const std::string& name) {
  std::vector<const TensorEntry*> by_place;
  for (const TensorEntry& entry : entries) {
    by_place.push_back(&entry);
  }
  std::sort(by_place.begin(), by_place.end(), [](const TensorEntry* a, const TensorEntry* b) {
    return std::pair(a->begin, a->end) < std::pair(b->begin, b->end);
  });
  std::size_t expected = 0;
  for (const TensorEntry* entry : by_place) {
    if (entry->begin != expected || entry->end < entry->begin ||
        entry->end - entry->begin != bytes_of(*entry, name)) {
      fail(name, "tensor " + entry->name + " is not where its size and shape put it");
    }
    expected = entry->end;
  }
  if (expected != data_size) {
    fail(name, "its tensors take " + std::to_string(expected) + " bytes, the file holds " +
                   std::to_string(data_size));
  }
}

}  // namespace

std::string format_tensor_table(const std::vector<TensorEntry>& entries) {
  // The mark of the framework, which some readers ask for.
  Json header = {{"__metadata__", {{"format", "pt"}}}};
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
  const Json header = Json::parse(text, nullptr, /*allow_exceptions=*/false);
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
  check_places(table.entries, file_size - table.data_begin, name);
  return table;
}

}  // namespace transnormer
