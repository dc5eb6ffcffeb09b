// A text file, plain or compressed.
#include <cstdint>
#include <string>
#include <string_view>

#include "data/text_reader.h"
#include "fuzz/fuzzer.h"

namespace {

namespace fuzz = transnormer::fuzz;

constexpr std::size_t kMost = std::size_t{16} << 20;  // small files may hold very long texts

// The text, or nothing where it is refused or too long.
bool read(const std::filesystem::path& file, std::size_t chunk_bytes, std::string& text) {
  return fuzz::reads([&] {
    transnormer::TextReader reader({.files = {file}}, chunk_bytes);
    for (transnormer::TextChunk chunk; text.size() < kMost && reader.next(chunk);) {
      fuzz::require(!chunk.text.empty(), "a chunk holds something");
      text += chunk.text;
    }
  });
}

}  // namespace

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view bytes = fuzz::bytes_of(data, size);
  const auto file = fuzz::put("text", bytes);
  std::string text;
  std::string other;
  const bool is_read = read(file, std::size_t{1} << 20, text);
  const bool is_read_in_pieces = read(file, 61, other);
  if (text.size() < kMost && other.size() < kMost) {
    fuzz::require(is_read == is_read_in_pieces,
                  "whether a text is sound does not depend on pieces");
    fuzz::require(!is_read || text == other, "nor what it holds");
  }
  return 0;
}
